// For tests: how many bytes this program has asked of the heap so far, never reduced.
//
// Errors:  none; a failed allocation aborts
// Threads: any
#pragma once

#include <cstdint>

namespace lockstep::model {

// An upper bound for what was held at any time. One hostile length that reaches an allocator shows here even if its
// pages are never touched.
uint64_t HeapBytesRequested();

}  // namespace lockstep::model
