#include "model/layers/attention.h"

#include <algorithm>

#include "base/bits.h"
#include "kernels/cpu/kernels.h"
#include "kv/kv_store.h"
#include "model/config.h"
#include "model/rope_table.h"
#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"

namespace lockstep::model {
namespace {

// Rotates queries and keys and puts keys and values into the cache. Items are (row, head); kv heads come first.
void RopeAndStore(StepContext& c, int layer) {
  TeamBuffers& team = c.team();
  const int dh = static_cast<int>(c.config().head_dim);
  const int kv_heads = c.shard().kv_heads.count(), q_heads = c.shard().q_heads.count();
  const int per_row = kv_heads + q_heads;
  GroupRange items = c.MyPart(c.view().num_rows * per_row);
  for (int item = items.begin; item < items.end; ++item) {
    const int row = item / per_row, head = item % per_row;
    const BatchRow& r = c.view().rows[row];
    const float *cos = c.rope().CosAt(r.position), *sin = c.rope().SinAt(r.position);
    if (head >= kv_heads) {
      c.kernels().rope(&team.q[static_cast<size_t>(row * team.ld_q + (head - kv_heads) * dh)], 1, dh, cos, sin);
      continue;
    }
    float* k = &team.k[static_cast<size_t>(row * team.ld_kv + head * dh)];
    const float* v = &team.v[static_cast<size_t>(row * team.ld_kv + head * dh)];
    c.kernels().rope(k, 1, dh, cos, sin);
    const BatchSequence& sequence = c.view().sequences[r.sequence];
    const int page = c.view().pages[sequence.first_page_idx + r.slot / kKvChunk];
    const int64_t offset = r.slot % kKvChunk * c.kv().row_bytes();
    const DType dtype = c.kv().shape().dtype;
    c.kernels().store_kv(k, dtype, static_cast<uint8_t*>(c.kv().Keys(layer, page, head)) + offset, dh);
    c.kernels().store_kv(v, dtype, static_cast<uint8_t*>(c.kv().Values(layer, page, head)) + offset, dh);
  }
}

// Fills the context's pointer lists for one row and kv head; returns the number of linear chunks.
int BindPath(StepContext& c, int layer, int row, int kv_head) {
  const BatchRow& r = c.view().rows[row];
  const BatchSequence& sequence = c.view().sequences[r.sequence];
  const int32_t* pages = c.view().pages + sequence.first_page_idx;
  const int num_keys = r.position + 1;
  const bool linear = c.is_linear(row);
  const int num_linear = linear ? CeilDiv(num_keys, kKvChunk) : sequence.committed / kKvChunk;
  for (int p = 0; p < num_linear; ++p) {
    c.page_k[static_cast<size_t>(p)] = c.kv().Keys(layer, pages[p], kv_head);
    c.page_v[static_cast<size_t>(p)] = c.kv().Values(layer, pages[p], kv_head);
  }
  if (linear) return num_linear;
  auto put = [&](int key, int slot) {
    const int64_t offset = slot % kKvChunk * c.kv().row_bytes();
    const int page = pages[slot / kKvChunk];
    const auto at = static_cast<size_t>(key - num_linear * kKvChunk);
    c.tail_k[at] = static_cast<const uint8_t*>(c.kv().Keys(layer, page, kv_head)) + offset;
    c.tail_v[at] = static_cast<const uint8_t*>(c.kv().Values(layer, page, kv_head)) + offset;
  };
  for (int key = num_linear * kKvChunk; key < sequence.committed; ++key) put(key, key);
  for (int ancestor = row; ancestor >= 0; ancestor = c.view().rows[ancestor].parent) {
    put(c.view().rows[ancestor].position, c.view().rows[ancestor].slot);
  }
  return num_linear;
}

void AttendRows(StepContext& c, int layer) {
  TeamBuffers& team = c.team();
  const ModelConfig& config = c.config();
  const int dh = static_cast<int>(config.head_dim), q_heads = c.shard().q_heads.count();
  const int group = static_cast<int>(config.num_heads / config.num_kv_heads);
  kernels::AttentionArgs args = {};
  args.head_dim = dh;
  args.scale = 1.0f / __builtin_sqrtf(static_cast<float>(dh));
  args.kv_dtype = c.kv().shape().dtype;
  args.page_k = c.page_k.data();
  args.page_v = c.page_v.data();
  args.tail_k = c.tail_k.data();
  args.tail_v = c.tail_v.data();
  GroupRange items = c.MyPart(c.view().num_rows * q_heads);
  for (int item = items.begin; item < items.end;) {
    const int row = item / q_heads, head = item % q_heads;
    const int full_head = c.shard().q_heads.begin + head;
    const int kv_head = full_head / group;
    // The run of this row's heads that share the kv head and belong to this thread.
    const int run = std::min({(kv_head + 1) * group - full_head, q_heads - head, items.end - item});
    args.num_linear_chunks = BindPath(c, layer, row, kv_head - c.shard().kv_heads.begin);
    args.num_keys = c.view().rows[row].position + 1;
    args.q = &team.q[static_cast<size_t>(row * team.ld_q + head * dh)];
    args.num_heads = run;
    args.out = team.attended.Row(row) + head * dh;
    c.kernels().attention(args);
    item += run;
  }
}

}  // namespace

bool Attend(StepContext& c, int layer) {
  if (!c.SyncRank()) return false;  // q, k, v of all threads
  c.watch().Stamp(trace::Owner::kMatmul);
  RopeAndStore(c, layer);
  if (!c.SyncRank()) return false;
  AttendRows(c, layer);
  const bool ok = c.Prepare(c.team().attended, c.shard().q_heads.count() * static_cast<int>(c.config().head_dim),
                            IsQuantised(c.weights().layers[static_cast<size_t>(layer)].attention_out.weight.dtype));
  c.watch().Stamp(trace::Owner::kAttention);
  return ok;
}

}  // namespace lockstep::model
