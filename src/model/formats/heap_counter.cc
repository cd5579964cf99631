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
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace lockstep::model {

uint64_t HeapBytesRequested() {
  return g_requested_bytes;
}

}  // namespace lockstep::model
