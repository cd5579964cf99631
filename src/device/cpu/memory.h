// Large blocks of memory: page aligned, on huge pages where the system grants them.
//
// Units:   bytes
// Errors:  kOutOfMemory  the system refused; the text names the bytes asked for and what they were for
// Threads: a block belongs to whoever holds it
// Capture: Prepare
// Order:   the kernel puts a page on the NUMA node of the thread that touches it first: the rank that reads a block
//          allocates and fills it, on its own pinned threads
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace lockstep::device::cpu {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

class Memory {
 public:
  Memory() = default;
  // Zeroed on first use. From 2 MiB on the block begins at a 2 MiB boundary and asks for transparent huge pages; a
  // refusal of those is not an error. `purpose` appears in the error: "kv pages".
  static Result<Memory> Allocate(size_t bytes, const std::string& purpose);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }
  // The system accepted the advice; whether a page is huge is decided when it is touched.
  bool huge_advised() const { return huge_advised_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  void* mapping_ = nullptr;  // holds data_
  size_t mapping_bytes_ = 0;
  bool huge_advised_ = false;
};

}  // namespace lockstep::device::cpu
