#include "device/cpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/bits.h"

namespace lockstep::device::cpu {

void* MapZeroPages(size_t bytes) {
  if (bytes == 0) bytes = 1;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return p;
}

void UnmapZeroPages(void* memory, size_t bytes) {
  munmap(memory, bytes == 0 ? 1 : bytes);
}

Result<Memory> Memory::Allocate(size_t bytes, const std::string& purpose) {
  Memory memory;
  memory.bytes_ = bytes;
  if (bytes == 0) return memory;
  const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const bool huge = bytes >= kHugePageBytes;
  // mmap aligns to small pages only: ask for one huge page more and begin at the boundary inside.
  const size_t slack_bytes = huge ? kHugePageBytes : 0;
  uint64_t mapping_bytes = 0;
  void* mapping = MAP_FAILED;
  errno = ENOMEM;
  if (CheckedAdd(bytes, slack_bytes + page_bytes, &mapping_bytes)) {
    mapping_bytes = mapping_bytes / page_bytes * page_bytes;
    mapping = mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (mapping == MAP_FAILED) {
    return OutOfMemory(fmt::format("cannot allocate {} bytes for {}: {}", bytes, purpose, std::strerror(errno)));
  }
  memory.mapping_ = mapping;
  memory.mapping_bytes_ = mapping_bytes;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(mapping);
  memory.data_ = reinterpret_cast<std::byte*>(huge ? AlignUp<uintptr_t>(begin, kHugePageBytes) : begin);
  if (huge) {
    memory.huge_advised_ = madvise(memory.data_, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE) == 0;
  }
  return memory;
}

Memory::~Memory() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

Memory::Memory(Memory&& other) noexcept {
  *this = std::move(other);
}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(huge_advised_, other.huge_advised_);
  return *this;
}

}  // namespace lockstep::device::cpu
