// One rank's keys and values: [page, layer, kv head, {K, V}, kKvChunk, Dh].
//
// Shapes:   a page of one head is [kKvChunk, Dh], keys then values; Dh padded to a multiple of 16; of 32 for kQ8_0
// Units:    slots in tokens; bytes
// Errors:   kOutOfMemory  the address space or the memory is refused; names the bytes
// Threads:  disjoint (layer, head, slot) may be written at once
// Capture:  Create no, the rest yes. Memory is reserved at once and becomes resident page by page, as it is written:
//           pages come first in the layout, so that a short text in a large context takes a small part of it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "base/result.h"
#include "device/cpu/memory.h"

namespace lockstep::kv {

struct KvShape {
  int num_layers;
  int num_pages;
  int num_kv_heads;  // of this rank
  int head_dim;      // padded to a multiple of 16
  DType dtype;       // kF16, kF32 or kQ8_0
};

class KvStore {
 public:
  static Result<KvStore> Create(const KvShape& shape);

  const KvShape& shape() const { return shape_; }

  // [kKvChunk, Dh] of one page.
  void* Keys(int layer, int page, int head) const { return At(layer, page, head); }
  void* Values(int layer, int page, int head) const { return At(layer, page, head) + half_bytes_; }
  // Bytes of one token's row in a page.
  int64_t row_bytes() const { return row_bytes_; }

  // Copies key and value of one slot to another, all local heads of one layer. `pages` is the sequence's page table.
  void CopySlot(int layer, const int32_t* pages, int from_slot, int to_slot) const;

 private:
  uint8_t* At(int layer, int page, int head) const {
    return base_ +
           ((static_cast<int64_t>(page) * shape_.num_layers + layer) * shape_.num_kv_heads + head) * 2 * half_bytes_;
  }

  KvShape shape_{};
  int64_t row_bytes_ = 0;
  int64_t half_bytes_ = 0;  // keys, or values, of one page and head
  uint8_t* base_ = nullptr;
  device::cpu::Memory memory_;
};

}  // namespace lockstep::kv
