#include "kv/page_pool.h"

#include <fmt/format.h>

#include "base/bits.h"
#include "base/law.h"

namespace lockstep::kv {

PagePool::PagePool(int num_pages) : num_pages_(num_pages) {
  for (int p = num_pages - 1; p >= 0; --p) free_.push_back(p);
}

Status PagePool::Grow(int num_tokens, std::vector<int32_t>* table) {
  int needed = CeilDiv(num_tokens, kKvChunk) - static_cast<int>(table->size());
  if (needed > num_free()) {
    return OutOfMemory(
        fmt::format("kv cache: {} more pages of {} tokens needed, {} of {} free; a larger --ctx-size helps", needed,
                    kKvChunk, num_free(), num_pages_));
  }
  for (int i = 0; i < needed; ++i) {
    table->push_back(free_.back());
    free_.pop_back();
  }
  return OkStatus();
}

void PagePool::Shrink(int num_tokens, std::vector<int32_t>* table) {
  size_t keep = static_cast<size_t>(CeilDiv(num_tokens, kKvChunk));
  while (table->size() > keep) {
    free_.push_back(table->back());
    table->pop_back();
  }
}

}  // namespace lockstep::kv
