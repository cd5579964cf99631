#include "model/layers/attention.h"

#include <algorithm>

#include "base/bits.h"
#include "comm/group.h"
#include "kernels/cpu/kernels.h"
#include "kv/kv_store.h"
#include "model/config.h"
#include "model/rope_table.h"
#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"

namespace lockstep::model {
namespace {

// A head whose squares overflow becomes NaN: the next norm finds that on every rank, while a norm of zeros would pass.
void NormHead(StepContext& c, float* head, const float* weight) {
  const int dh = static_cast<int>(c.config().head_dim);
  kernels::NormArgs args = {};
  args.x = head;
  args.weight = weight;
  args.eps = c.config().rms_norm_eps;
  args.d = dh;
  args.out = head;
  if (!c.kernels().add_norm(args)) std::fill_n(head, dh, __builtin_nanf(""));
}

// Rotates queries and keys and puts keys and values into the cache. Items are (row, head); kv heads come first.
void RopeAndStore(StepContext& c, int layer, const HeadNorms& norms) {
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
      float* q = &team.q[static_cast<size_t>(row * team.ld_q + (head - kv_heads) * dh)];
      if (norms.q != nullptr) NormHead(c, q, norms.q);
      c.kernels().rope(q, 1, dh, cos, sin);
      continue;
    }
    float* k = &team.k[static_cast<size_t>(row * team.ld_kv + head * dh)];
    const float* v = &team.v[static_cast<size_t>(row * team.ld_kv + head * dh)];
    if (norms.k != nullptr) NormHead(c, k, norms.k);
    c.kernels().rope(k, 1, dh, cos, sin);
    const BatchSequence& sequence = c.view().sequences[r.sequence];
    const int page = c.view().pages[sequence.first_page_idx + r.slot / kKvChunk];
    const int64_t offset = r.slot % kKvChunk * c.kv().row_bytes();
    const DType dtype = c.kv().shape().dtype;
    c.kernels().store_kv(k, dtype, static_cast<uint8_t*>(c.kv().Keys(layer, page, head)) + offset, dh);
    c.kernels().store_kv(v, dtype, static_cast<uint8_t*>(c.kv().Values(layer, page, head)) + offset, dh);
  }
}

// Fills the pointers to a row's gathered keys: those behind the last whole committed chunk, then its ancestors and itself.
void BindTail(StepContext& c, int layer, int row, int kv_head, const void** tail_k, const void** tail_v) {
  const BatchSequence& sequence = c.view().sequences[c.view().rows[row].sequence];
  const int32_t* pages = c.view().pages + sequence.first_page_idx;
  const int first = sequence.committed / kKvChunk * kKvChunk;
  auto put = [&](int key, int slot) {
    const int64_t offset = slot % kKvChunk * c.kv().row_bytes();
    const int page = pages[slot / kKvChunk];
    tail_k[key - first] = static_cast<const uint8_t*>(c.kv().Keys(layer, page, kv_head)) + offset;
    tail_v[key - first] = static_cast<const uint8_t*>(c.kv().Values(layer, page, kv_head)) + offset;
  };
  for (int key = first; key < sequence.committed; ++key) put(key, key);
  for (int ancestor = row; ancestor >= 0; ancestor = c.view().rows[ancestor].parent) {
    put(c.view().rows[ancestor].position, c.view().rows[ancestor].slot);
  }
}

// Chunks of all rows that are attended apart, and where their results go (kernels::AttentionArgs::partial_stride).
struct ChunksApart {
  GroupRange chunks;
  float* results;  // of the first row's chunk 0
  int64_t row_stride, chunk_stride;
};

// Some neighbouring query heads (of this rank) that share a kv head, for rows [row_begin, row_end).
void AttendHeads(StepContext& c, int layer, int kv_head, GroupRange heads, GroupRange rows,
                 const ChunksApart* apart = nullptr) {
  TeamBuffers& team = c.team();
  const int dh = static_cast<int>(c.config().head_dim);
  kernels::AttentionArgs args = {};
  args.rows = c.attention_rows.data();
  args.head_dim = dh;
  args.scale = 1.0f / __builtin_sqrtf(static_cast<float>(dh));
  args.kv_dtype = c.kv().shape().dtype;
  args.page_k = c.page_k.data();
  args.page_v = c.page_v.data();
  args.scratch = c.attention_scratch();
  if (apart != nullptr) {
    args.chunk_begin = apart->chunks.begin;
    args.chunk_end = apart->chunks.end;
    args.partial_stride = apart->chunk_stride;
  }
  for (int row = rows.begin; row < rows.end;) {
    const int sequence_idx = c.view().rows[row].sequence;
    const BatchSequence& sequence = c.view().sequences[sequence_idx];
    int num_pages = 0;
    args.num_rows = 0;
    for (; row < rows.end && args.num_rows < kernels::kAttentionRows; ++row) {
      const BatchRow& r = c.view().rows[row];
      if (r.sequence != sequence_idx) break;
      kernels::AttentionRow& to = c.attention_rows[static_cast<size_t>(args.num_rows)];
      to.q = &team.q[static_cast<size_t>(row * team.ld_q + heads.begin * dh)];
      to.out = team.attended.Row(row) + heads.begin * dh;
      to.partials = apart == nullptr ? nullptr : apart->results + row * apart->row_stride;
      to.num_keys = r.position + 1;
      to.num_linear_chunks = c.is_linear(row) ? CeilDiv(to.num_keys, kKvChunk) : sequence.committed / kKvChunk;
      to.tail_k = c.TailKeys(args.num_rows);
      to.tail_v = c.TailValues(args.num_rows);
      if (!c.is_linear(row)) {
        BindTail(c, layer, row, kv_head, c.TailKeys(args.num_rows), c.TailValues(args.num_rows));
      }
      num_pages = std::max(num_pages, to.num_linear_chunks);
      ++args.num_rows;
    }
    for (int p = 0; p < num_pages; ++p) {
      const int page = c.view().pages[sequence.first_page_idx + p];
      c.page_k[static_cast<size_t>(p)] = c.kv().Keys(layer, page, kv_head);
      c.page_v[static_cast<size_t>(p)] = c.kv().Values(layer, page, kv_head);
    }
    for (int h = heads.begin; h < heads.end; h += args.num_heads) {
      args.num_heads = std::min(heads.end - h, kernels::kAttentionHeads);
      c.kernels().attention(args);
      for (int i = 0; i < args.num_rows; ++i) {
        c.attention_rows[static_cast<size_t>(i)].q += args.num_heads * dh;
        c.attention_rows[static_cast<size_t>(i)].out += args.num_heads * dh;
      }
    }
  }
}

// The items are (kv head, row, query head of the kv head) in this order, and a thread does those whose keys lie in its
// share of all keys: equal work, and as many rows and heads as possible that share a chunk's keys.
void AttendRows(StepContext& c, int layer) {
  const int group = static_cast<int>(c.config().num_heads / c.config().num_kv_heads);
  const auto q_heads = c.shard().q_heads;
  const int num_rows = c.view().num_rows;
  const int64_t total = c.keys_before(num_rows) * q_heads.count();
  const comm::Member& member = c.member();
  const int64_t begin = total * member.thread() / member.threads_per_rank();
  const int64_t end = total * (member.thread() + 1) / member.threads_per_rank();
  int64_t before = 0;  // keys of the kv heads before this one
  for (int first = q_heads.begin; first < q_heads.end;) {
    const int kv_head = first / group, last = std::min((kv_head + 1) * group, q_heads.end);
    const int heads = last - first, head = first - q_heads.begin;
    const int local_kv = kv_head - c.shard().kv_heads.begin;
    const AttentionItem from = c.FindItem(begin - before, heads), to = c.FindItem(end - before, heads);
    auto part = [&](int row_begin, int row_end, int head_begin, int head_end) {
      if (row_begin >= row_end || head_begin >= head_end) return;
      AttendHeads(c, layer, local_kv, {head + head_begin, head + head_end}, {row_begin, row_end});
    };
    if (from.row == to.row) {
      part(from.row, from.row + 1, from.head, to.head);
    } else {
      const int whole = from.head == 0 ? from.row : from.row + 1;
      part(from.row, whole, from.head, heads);
      part(whole, to.row, 0, heads);
      part(to.row, to.row + 1, 0, to.head);
    }
    before += c.keys_before(num_rows) * heads;
    first = last;
  }
}

// A few rows with a long context have fewer heads than the threads could share evenly. Then the threads share the chunks
// of all keys instead, in the order (kv head, chunk). A kv head that falls to one thread is attended as ever; of one that
// is cut, every chunk is left by itself, and once all are there they are merged in order.
class ChunkSplit {
 public:
  explicit ChunkSplit(StepContext& c) : c_(c), heads_(c.shard().q_heads), rows_(c.view().num_rows) {
    for (int r = 0; r < rows_; ++r) chunks_ = std::max(chunks_, CeilDiv(c.view().rows[r].position + 1, kKvChunk));
    group_ = static_cast<int>(c.config().num_heads / c.config().num_kv_heads);
    threads_ = c.member().threads_per_rank();
  }

  // The same for all threads. Below kSplitChunks the merge costs more than uneven shares.
  bool Pays() const {
    constexpr int kSplitChunks = 4;
    return threads_ > 1 && c_.view().num_sequences == 1 && chunks_ >= kSplitChunks &&
           rows_ <= kernels::kAttentionRows && group_ <= kernels::kAttentionHeads &&
           rows_ * heads_.count() <= c_.team().split_row_heads;
  }

  void Attend(int layer) {
    ForEachGroup([&](int kv_head, GroupRange heads, int64_t before) {
      const int begin = Cut(c_.member().thread(), heads, before), end = Cut(c_.member().thread() + 1, heads, before);
      if (begin == end) return;
      if (begin == 0 && end == chunks_) return AttendHeads(c_, layer, kv_head, heads, {0, rows_});
      const ChunksApart apart = {{begin, end}, Results(heads), RowElems(heads), RowElems(heads) * rows_};
      AttendHeads(c_, layer, kv_head, heads, {0, rows_}, &apart);
    });
  }

  void Merge() {
    int items = 0;
    ForEachGroup(
        [&](int, GroupRange heads, int64_t before) { items += IsCut(heads, before) ? Count(heads) * rows_ : 0; });
    const GroupRange mine = c_.MyPart(items);
    int item = 0;
    ForEachGroup([&](int, GroupRange heads, int64_t before) {
      if (!IsCut(heads, before)) return;
      for (int i = 0; i < Count(heads) * rows_; ++i, ++item) {
        if (item >= mine.begin && item < mine.end) MergeHead(heads, i / Count(heads), i % Count(heads));
      }
    });
  }

 private:
  static int Count(GroupRange heads) { return heads.end - heads.begin; }
  int HeadElems() const { return kernels::AttentionPartialElems(1, static_cast<int>(c_.config().head_dim)); }
  int64_t RowElems(GroupRange heads) const { return int64_t{Count(heads)} * HeadElems(); }
  float* Results(GroupRange heads) const {
    return c_.team().split_results.data() + int64_t{heads.begin} * rows_ * chunks_ * HeadElems();
  }

  // Calls f(local kv head, local query heads that share it, (head, chunk) items before them).
  template <class F>
  void ForEachGroup(F f) const {
    for (int first = heads_.begin; first < heads_.end;) {
      const int kv_head = first / group_, last = std::min((kv_head + 1) * group_, heads_.end);
      f(kv_head - c_.shard().kv_heads.begin, GroupRange{first - heads_.begin, last - heads_.begin},
        int64_t{first - heads_.begin} * chunks_);
      first = last;
    }
  }

  // The chunk of these heads where thread `thread` begins.
  int Cut(int thread, GroupRange heads, int64_t before) const {
    const int64_t all = int64_t{heads_.count()} * chunks_, own = int64_t{Count(heads)} * chunks_;
    return static_cast<int>(std::clamp<int64_t>(all * thread / threads_ - before, 0, own) / Count(heads));
  }
  bool IsCut(GroupRange heads, int64_t before) const {
    for (int t = 1; t < threads_; ++t) {
      const int cut = Cut(t, heads, before);
      if (cut > 0 && cut < chunks_) return true;
    }
    return false;
  }

  void MergeHead(GroupRange heads, int row, int head) {
    const int dh = static_cast<int>(c_.config().head_dim);
    const float* results = Results(heads) + row * RowElems(heads);
    c_.kernels().merge_attention({results + head * dh, results + Count(heads) * dh + 2 * head, RowElems(heads) * rows_,
                                  CeilDiv(c_.view().rows[row].position + 1, kKvChunk), dh,
                                  c_.team().attended.Row(row) + (heads.begin + head) * dh});
  }

  StepContext& c_;
  UnitRange heads_;
  int rows_, chunks_ = 0, group_, threads_;
};

}  // namespace

void PrefetchFirstPages(StepContext& c, int layer) {
  constexpr int kSequences = 4;  // more would push the weights out that the matmul asks for itself
  const int64_t row_bytes = c.kv().row_bytes();
  for (int s = 0; s < std::min(c.view().num_sequences, kSequences); ++s) {
    const BatchSequence& sequence = c.view().sequences[s];
    const int64_t bytes = std::min(sequence.committed, kKvChunk) * row_bytes;
    const int page = c.view().pages[sequence.first_page_idx];
    for (int head = 0; head < c.shard().kv_heads.count(); ++head) {
      const auto* keys = static_cast<const char*>(c.kv().Keys(layer, page, head));
      const auto* values = static_cast<const char*>(c.kv().Values(layer, page, head));
      for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(keys + i, 0, 2);
        __builtin_prefetch(values + i, 0, 2);
      }
    }
  }
}

bool Attend(StepContext& c, int layer, const HeadNorms& norms) {
  if (!c.SyncRank()) return false;  // q, k, v of all threads
  c.Stamp(trace::Owner::kMatmul);
  RopeAndStore(c, layer, norms);
  if (!c.SyncRank()) return false;
  ChunkSplit split(c);
  if (split.Pays()) {
    split.Attend(layer);
    if (!c.SyncRank()) return false;
    split.Merge();
  } else {
    AttendRows(c, layer);
  }
  const bool ok = c.Prepare(c.team().attended, c.shard().q_heads.count() * static_cast<int>(c.config().head_dim),
                            IsQuantised(c.weights().layers[static_cast<size_t>(layer)].attention_out.weight.dtype));
  c.Stamp(trace::Owner::kAttention);
  return ok;
}

bool SelfAttention(StepContext& c, int layer) {
  const LayerWeights& w = c.weights().layers[static_cast<size_t>(layer)];
  TeamBuffers& team = c.team();
  PrefetchFirstPages(c, layer);
  w.q.Run(c, team.q.data(), team.ld_q);
  w.q_bias.Run(c, team.q.data(), team.ld_q);
  w.k.Run(c, team.k.data(), team.ld_kv);
  w.k_bias.Run(c, team.k.data(), team.ld_kv);
  w.v.Run(c, team.v.data(), team.ld_kv);
  w.v_bias.Run(c, team.v.data(), team.ld_kv);
  if (!Attend(c, layer, w.head_norms)) return false;
  w.attention_out.Run(c);
  return true;
}

}  // namespace lockstep::model
