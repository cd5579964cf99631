#include "model/step_context.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bits.h"
#include "comm/group.h"
#include "kernels/cpu/kernels.h"
#include "kernels/pack.h"
#include "model/config.h"
#include "model/shard.h"
#include "model/weights.h"
#include "trace/ticks.h"

namespace lockstep::model {

Activations::Activations(int rows, int cols) : ld(AlignUp(cols, kBlock)), ld_block(CeilDiv(cols, kBlock)) {
  f32.resize(static_cast<size_t>(rows * ld));
  q.resize(static_cast<size_t>(rows * ld));
  scale.resize(static_cast<size_t>(rows * ld_block));
  scaled_sum.resize(scale.size());
  sum.resize(scale.size());
  half_sum.resize(scale.size());
}

kernels::QuantRows Activations::Quant() {
  return {q.data(), scale.data(), sum.data(), scaled_sum.data(), half_sum.data(), ld, ld_block};
}

TeamBuffers::TeamBuffers(const ModelConfig& c, const RankShard& shard, int max_rows, int max_pages_per_sequence,
                         int threads) {
  const int d = static_cast<int>(c.hidden), dh = static_cast<int>(c.head_dim);
  const int heads = shard.q_heads.count() * dh, kv = shard.kv_heads.count() * dh, ffn = shard.ffn.count();
  auto rows = [max_rows](int64_t ld) { return device::cpu::ZeroVector<float>(static_cast<size_t>(max_rows * ld)); };
  ld_x = AlignUp(d, kBlock);
  ld_q = AlignUp(heads, kBlock);
  ld_kv = AlignUp(kv, kBlock);
  ld_ffn = AlignUp(ffn, kBlock);
  x = rows(ld_x);
  normed = Activations(max_rows, d);
  q = rows(ld_q);
  k = rows(ld_kv);
  v = rows(ld_kv);
  attended = Activations(max_rows, heads);
  gate = rows(ld_ffn);
  up = rows(ld_ffn);
  gated = Activations(max_rows, ffn);
  if (c.arch == kHeadArch) {
    normed = Activations(max_rows, 2 * d);
    features = Activations(max_rows, shard.fc.count());
    hidden.resize(static_cast<size_t>(kHiddenStates * ld_x));
  }
  // Eight a thread: with more, whole heads are as good a share as chunks. A call of the kernel takes no more than its rows.
  split_row_heads = threads > 1 ? std::min(8 * threads, kernels::kAttentionRows * shard.q_heads.count()) : 0;
  split_results.resize(static_cast<size_t>(split_row_heads) * static_cast<size_t>(max_pages_per_sequence) *
                       static_cast<size_t>(kernels::AttentionPartialElems(1, dh)));
  bad_layer.assign(static_cast<size_t>(max_rows), -1);
}

StepContext::StepContext(const StepContextOptions& options)
    : o_(options), shard_(&o_.plan->ranks[static_cast<size_t>(o_.member->rank())]) {
  const int widest = static_cast<int>(
      std::max({o_.team->normed.ld, o_.team->ld_q, o_.team->ld_ffn, o_.team->features.ld, o_.team->ld_x}));
  mine_x_.assign(static_cast<size_t>(kPrivateRows * o_.team->ld_x), 0.0f);
  mine_ = Activations(kPrivateRows, widest);
  linear_.assign(static_cast<size_t>(o_.max_rows + kMaxPathRows), 0);
  if (o_.config->arch == kHeadArch) {
    const Eagle3Config& head = o_.config->eagle3;
    taps_.assign(AlignUp<size_t>(head.tap_layers.size() * head.target_hidden, kBlock), 0.0f);
  }
  for (auto* pages : {&page_k, &page_v}) pages->resize(static_cast<size_t>(o_.max_pages_per_sequence));
  // A tail begins at the last whole committed chunk: at most one chunk of committed keys and the path itself.
  tail_elems_ = static_cast<size_t>(kKvChunk + o_.max_rows);
  for (auto* tail : {&tail_k_, &tail_v_}) tail->resize(kernels::kAttentionRows * tail_elems_);
  attention_rows.resize(kernels::kAttentionRows);
  scratch_.resize(static_cast<size_t>(kernels::AttentionScratchElems(static_cast<int>(o_.config->head_dim)) / kLanes));
  keys_before_.assign(static_cast<size_t>(o_.max_rows) + 1, 0);
}

void StepContext::Begin(const StepView& view) {
  view_ = view;
  has_pending_ = false;
  if (!o_.all_reduce_delay_ticks.empty()) delay_ticks_ = o_.all_reduce_delay_ticks[static_cast<size_t>(view.num_rows)];
  private_ = o_.member->threads_per_rank() > 1 && view.num_rows <= kPrivateRows;
  auto find_linear = [&](int r) {
    const BatchRow& row = view.rows[r];
    linear_[static_cast<size_t>(r)] = row.slot == row.position && (row.parent < 0 || is_linear(row.parent));
  };
  for (int r = view.num_rows; r < view.num_rows + view.num_path_rows; ++r) find_linear(r);
  for (int r = 0; r < view.num_rows; ++r) {
    const BatchRow& row = view.rows[r];
    find_linear(r);
    keys_before_[static_cast<size_t>(r) + 1] = keys_before_[static_cast<size_t>(r)] + row.position + 1;
  }
}

GroupRange StepContext::MyPart(int count) const {
  return ThreadGroups(count, o_.member->thread(), o_.member->threads_per_rank());
}

bool StepContext::SyncRank() {
  return o_.member->SyncRank(comm::SyncOp::kBarrier);
}

GroupRange StepContext::NormRows() const {
  return private_ ? GroupRange{0, view_.num_rows} : MyPart(view_.num_rows);
}

AttentionItem StepContext::FindItem(int64_t keys, int heads) const {
  const auto end = keys_before_.begin() + view_.num_rows;
  if (keys <= 0) return {0, 0};
  if (keys >= *end * heads) return {view_.num_rows, 0};
  const auto next = std::upper_bound(keys_before_.begin(), end, keys / heads);
  const int row = static_cast<int>(next - keys_before_.begin()) - 1;
  const int64_t keys_of_row = *next - *(next - 1);
  return {row, static_cast<int>((keys - *(next - 1) * heads) / keys_of_row)};
}

void StepContext::Stamp(trace::Owner owner) {
  watch_.StampSplit(owner, trace::Owner::kAllReduceWait, o_.member->TakeWaitTicks());
}

void StepContext::EmbedRow(int row, float* out) const {
  const TensorRef& e = o_.weights->embedding;
  const DTypeInfo info = GetDTypeInfo(e.dtype);
  const int64_t row_bytes = static_cast<int64_t>(e.cols) / info.block_elems * info.block_bytes;
  kernels::DequantRow(e.dtype, e.data + view_.rows[row].token * row_bytes, static_cast<int64_t>(e.cols), out);
}

void StepContext::Embed() {
  GroupRange rows = NormRows();
  for (int r = rows.begin; r < rows.end; ++r) {
    if (!private_ || o_.member->thread() == 0) o_.team->bad_layer[static_cast<size_t>(r)] = -1;
    EmbedRow(r, X(r));
  }
  Stamp(trace::Owner::kOther);
}

void StepContext::OpenSum(const comm::CpuShared::Site& site, comm::CpuShared::Call* call) {
  pending_ = o_.shared.Begin(site, static_cast<size_t>(view_.num_rows), static_cast<size_t>(o_.team->ld_x));
  has_pending_ = true;
  ++num_all_reduces_;
  *call = pending_;
}

bool StepContext::ResolvePending() {
  if (!has_pending_) return true;
  Stamp(trace::Owner::kMatmul);
  bool ok = o_.member->SyncWorld(comm::SyncOp::kAllReduce);
  Stamp(trace::Owner::kAllReduceWait);
  if (delay_ticks_ != 0) [[unlikely]]
    Delay();
  return ok;
}

// Everyone spins from its own arrival on: on a slow link too a rank goes on when its own data are there.
void StepContext::Delay() {
  const uint64_t begin = trace::Ticks();
  while (trace::Ticks() - begin < delay_ticks_) {
  }
  Stamp(trace::Owner::kAllReduceMove);
}

void StepContext::AddNormRow(int row, const float* weight, float* out, int layer) {
  const float* partials[comm::CpuShared::kMaxPartials];
  kernels::NormArgs args = {};
  args.x = X(row);
  if (has_pending_) {
    for (int p = 0; p < pending_.num_partials; ++p) {
      partials[p] = pending_.partials[static_cast<size_t>(p)] + static_cast<int64_t>(row) * o_.team->ld_x;
    }
    args.partials = partials;
    args.merges_after = pending_.top->merges_after.data();
    args.num_partials = pending_.num_partials;
  }
  args.weight = weight;
  args.eps = o_.config->rms_norm_eps;
  args.d = static_cast<int>(o_.config->hidden);
  args.out = out;
  const bool finite = kernels().add_norm(args);
  if (private_ && o_.member->thread() != 0) return;  // one writer a row
  int32_t& bad_layer = o_.team->bad_layer[static_cast<size_t>(row)];
  if (!finite && bad_layer < 0) bad_layer = layer;
}

void StepContext::Quantise(const float* x, int cols, Activations& to, int row) {
  kernels::QuantRows rows = to.Quant();
  kernels().quantise_row(x, cols, rows, row);
  if (!fault_round || view_.num_rows < 2) return;
  for (int i = 0; i < AlignUp(cols, kBlock); ++i) {  // the planted fault: one rounding toward zero instead of to even
    float scale = rows.scale[row * rows.ld_block + i / kBlock];
    float value = scale == 0.0f ? 0.0f : x[i] / scale;
    int8_t& q = rows.q[row * rows.ld_q + i];
    const int change = static_cast<int>(value) - q;
    rows.sum[row * rows.ld_block + i / kBlock] += change;
    if (i % kBlock < kBlock / 2) rows.half_sum[row * rows.ld_block + i / kBlock] += change;
    q = static_cast<int8_t>(value);
  }
}

bool StepContext::Norm(const float* weight, int layer) {
  if (!ResolvePending()) return false;
  if (fault_corrupt && layer == 0 && o_.member->thread() == 0) X(0)[0] += 1.0f;
  Activations& to = private_ ? mine_ : o_.team->normed;
  GroupRange rows = NormRows();
  const int d = static_cast<int>(o_.config->hidden);
  for (int r = rows.begin; r < rows.end; ++r) {
    AddNormRow(r, weight, to.Row(r), layer);
    Quantise(to.Row(r), d, to, r);
  }
  // Reading and adding the partial sums is fused with the norm; the whole pass is booked as the move.
  Stamp(has_pending_ ? trace::Owner::kAllReduceMove : trace::Owner::kOther);
  has_pending_ = false;
  input_ = &to;
  input_rows_ = view_.num_rows;
  return private_ || SyncRank();
}

bool StepContext::Prepare(Activations& from, int cols, bool quantise) {
  if (!SyncRank()) return false;  // the other threads' columns
  input_ = &from;
  input_rows_ = view_.num_rows;
  if (!quantise) return true;
  if (private_) {
    for (int r = 0; r < view_.num_rows; ++r) Quantise(from.Row(r), cols, mine_, r);
    input_ = &mine_;
    return true;
  }
  GroupRange rows = MyPart(view_.num_rows);
  for (int r = rows.begin; r < rows.end; ++r) Quantise(from.Row(r), cols, from, r);
  return SyncRank();
}

bool StepContext::FinalNorm(const float* weight) {
  if (!ResolvePending()) return false;
  const int last_layer = static_cast<int>(o_.config->num_layers);
  Activations& to = private_ ? mine_ : o_.team->normed;
  GroupRange part = private_ ? GroupRange{0, view_.num_logits_rows} : MyPart(view_.num_logits_rows);
  const int d = static_cast<int>(o_.config->hidden);
  for (int i = part.begin; i < part.end; ++i) {
    AddNormRow(view_.logits_rows[i], weight, to.Row(i), last_layer);
    Quantise(to.Row(i), d, to, i);
    SaveHidden(i, to.Row(i));
  }
  Stamp(trace::Owner::kAllReduceMove);
  has_pending_ = false;
  input_ = &to;
  input_rows_ = view_.num_logits_rows;
  if (!private_ && !SyncRank()) return false;
  if (o_.member->thread() == 0 &&
      o_.config->arch !=
          kHeadArch) {  // FNV-1a over 32-bit words: a guard against a rank that went astray, not a cipher
    uint64_t hash = 0xcbf29ce484222325ull;
    for (int i = 0; i < view_.num_logits_rows; ++i) {
      for (int j = 0; j < d; ++j) {
        uint32_t bits;
        std::memcpy(&bits, to.Row(i) + j, sizeof bits);
        hash = (hash ^ bits) * 0x100000001b3ull;
      }
    }
    hidden_hash_ = hash;
  }
  return true;
}

namespace {

// This thread's groups of outputs, for the rows that the last norm or activation prepared.
void RunMatmul(StepContext& c, const kernels::PackedMatrix& weight, const kernels::LeafPlan& plan,
               const std::array<float*, 3>& out, int64_t ld_out) {
  Activations& in = c.input();
  kernels::QuantRows quant = in.Quant();
  GroupRange groups = c.MyPart(weight.num_groups);
  kernels::MatmulArgs args = {};
  args.weight = &weight;
  args.group_begin = groups.begin;
  args.group_end = groups.end;
  args.quant = &quant;
  args.x = in.f32.data();
  args.ld_x = in.ld;
  args.rows = c.input_rows();
  args.plan = &plan;
  std::copy(out.begin(), out.end(), args.out);
  args.ld_out = ld_out;
  c.kernels().matmul(args);
}

}  // namespace

void ColumnLinear::Run(StepContext& c, float* out, int64_t ld_out) const {
  RunMatmul(c, weight, plan, {out, nullptr, nullptr}, ld_out);
}

void ColumnBias::Run(StepContext& c, float* out, int64_t ld_out) const {
  if (values == nullptr) return;
  const GroupRange groups = c.MyPart(num_groups);
  const int first = groups.begin * 16, count = (groups.end - groups.begin) * 16;
  for (int row = 0; row < c.input_rows(); ++row)
    c.kernels().add_bias(out + row * ld_out + first, values + first, count);
}

void RowLinear::Run(StepContext& c) const {
  comm::CpuShared::Call call;
  c.OpenSum(site, &call);
  RunMatmul(c, weight, plan, call.mine, c.team().ld_x);
}

}  // namespace lockstep::model
