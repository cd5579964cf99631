// Pages of the kv cache: who owns which. Host logic only; the memory is kv_store.h's.
//
// Units:   pages of kKvChunk tokens
// Errors:  kOutOfMemory  no free page: names how many were asked for and how many are free
// Threads: one caller
// Capture: no
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace lockstep::kv {

class PagePool {
 public:
  explicit PagePool(int num_pages);

  int num_pages() const { return num_pages_; }
  int num_free() const { return static_cast<int>(free_.size()); }

  // Appends pages to `table` until it holds `num_tokens` tokens; on an error the table is unchanged.
  Status Grow(int num_tokens, std::vector<int32_t>* table);
  // Gives back the pages behind the first `num_tokens` tokens.
  void Shrink(int num_tokens, std::vector<int32_t>* table);

 private:
  int num_pages_;
  std::vector<int32_t> free_;  // the next page to hand out is at the back
};

}  // namespace lockstep::kv
