// In a file of its own: where the compiler sees both the replacement and its users, it warns of a mismatch.
#include "model/formats/heap_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uint64_t> g_requested_bytes{0};
}  // namespace

void* operator new(size_t num_bytes) {
  g_requested_bytes += num_bytes;
  if (void* p = std::malloc(num_bytes ? num_bytes : 1)) return p;
  std::abort();
}
// Asked for by std::stable_sort. What allocates and what frees must be of one kind, or a sanitizer objects.
void* operator new(size_t num_bytes, const std::nothrow_t&) noexcept {
  g_requested_bytes += num_bytes;
  return std::malloc(num_bytes ? num_bytes : 1);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}

namespace lockstep::model {

uint64_t HeapBytesRequested() {
  return g_requested_bytes;
}

}  // namespace lockstep::model
