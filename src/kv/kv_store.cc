#include "kv/kv_store.h"

#include <cstring>

#include "base/check.h"
#include "base/law.h"

namespace lockstep::kv {

Result<KvStore> KvStore::Create(const KvShape& shape) {
  const DTypeInfo info = GetDTypeInfo(shape.dtype);
  LS_CHECK_EQ(shape.head_dim % kLanes, 0);
  LS_CHECK_EQ(shape.head_dim % static_cast<int>(info.block_elems), 0);
  KvStore store;
  store.shape_ = shape;
  store.row_bytes_ = static_cast<int64_t>(shape.head_dim) / info.block_elems * info.block_bytes;
  store.half_bytes_ = store.row_bytes_ * kKvChunk;
  int64_t bytes = static_cast<int64_t>(shape.num_layers) * shape.num_pages * shape.num_kv_heads * 2 * store.half_bytes_;
  auto memory = device::cpu::Memory::Allocate(static_cast<size_t>(bytes), "kv cache");
  if (!memory.ok()) return memory.status();
  store.memory_ = std::move(memory).value();
  store.base_ = reinterpret_cast<uint8_t*>(store.memory_.data());
  return store;
}

void KvStore::CopySlot(int layer, const int32_t* pages, int from_slot, int to_slot) const {
  const int64_t from = from_slot % kKvChunk * row_bytes_, to = to_slot % kKvChunk * row_bytes_;
  for (int head = 0; head < shape_.num_kv_heads; ++head) {
    const uint8_t* source = At(layer, pages[from_slot / kKvChunk], head) + from;
    uint8_t* target = At(layer, pages[to_slot / kKvChunk], head) + to;
    std::memcpy(target, source, static_cast<size_t>(row_bytes_));
    std::memcpy(target + half_bytes_, source + half_bytes_, static_cast<size_t>(row_bytes_));
  }
}

}  // namespace lockstep::kv
