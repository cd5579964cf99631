#include "step/member_step.h"

#include <algorithm>

#include "base/bits.h"
#include "base/check.h"
#include "comm/cpu_shared.h"
#include "comm/group.h"
#include "kernels/cpu/kernels.h"
#include "kv/kv_store.h"
#include "model/config.h"
#include "model/registry.h"
#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"
#include "step/draft_step.h"
#include "trace/step_breakdown.h"

namespace lockstep::step {
namespace {

bool NeedsSampler(const SamplingSpec& s) {
  return !s.greedy() || s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0 ||
         s.num_logit_bias > 0;
}

}  // namespace

SharedLayout::SharedLayout(const model::ModelConfig& config, int num_members, int num_sequences, int context_tokens,
                           int max_rows, size_t begin, bool is_draft)
    : pages_per_sequence(CeilDiv(context_tokens, kKvChunk)),
      context(context_tokens),
      ld_logits(AlignUp<int64_t>(config.vocab, 16)),
      all_reduce_elems(static_cast<size_t>(max_rows) * AlignUp<size_t>(config.hidden, kBlock)) {
  size_t used = begin;
  auto take = [&used](size_t bytes) {
    size_t at = used;
    used += AlignUp<size_t>(bytes, 4096);
    return at;
  };
  input_ = take(2 * AlignUp<size_t>(sizeof(StepInput), 4096));
  output_ = take(sizeof(StepOutput));
  history_ = take(sizeof(int32_t) * static_cast<size_t>(num_sequences) * static_cast<size_t>(context));
  pages_ = take(sizeof(int32_t) * static_cast<size_t>(num_sequences) * static_cast<size_t>(pages_per_sequence));
  candidates_ = take(sizeof(Candidate) * kMaxLogitsRows * static_cast<size_t>(num_members));
  breakdowns_ = take(128 * static_cast<size_t>(num_members));
  weight_bytes_ = take(sizeof(int64_t) * static_cast<size_t>(num_members));
  all_reduce_bytes_ = comm::CpuShared::SharedBytes(comm::CpuShared::kMaxPartials, all_reduce_elems);
  all_reduce_ = take(all_reduce_bytes_);
  logits_ = take(sizeof(float) * kMaxLogitsRows * static_cast<size_t>(ld_logits));
  draft_parts_ = take(is_draft ? sizeof(DraftPart) * kMaxLogitsRows * static_cast<size_t>(num_members) : 0);
  end = used;
}

StepInput* SharedLayout::Input(std::byte* base, int parity) const {
  return reinterpret_cast<StepInput*>(base + input_ +
                                      static_cast<size_t>(parity) * AlignUp<size_t>(sizeof(StepInput), 4096));
}
StepOutput* SharedLayout::Output(std::byte* base) const {
  return reinterpret_cast<StepOutput*>(base + output_);
}
int32_t* SharedLayout::History(std::byte* base, int sequence) const {
  return reinterpret_cast<int32_t*>(base + history_) + static_cast<int64_t>(sequence) * context;
}
int32_t* SharedLayout::Pages(std::byte* base) const {
  return reinterpret_cast<int32_t*>(base + pages_);
}
SharedLayout::Candidate* SharedLayout::Candidates(std::byte* base, int member) const {
  return reinterpret_cast<Candidate*>(base + candidates_) + static_cast<int64_t>(member) * kMaxLogitsRows;
}
DraftPart* SharedLayout::DraftParts(std::byte* base, int member) const {
  return reinterpret_cast<DraftPart*>(base + draft_parts_) + static_cast<int64_t>(member) * kMaxLogitsRows;
}
float* SharedLayout::Logits(std::byte* base) const {
  return reinterpret_cast<float*>(base + logits_);
}
trace::StepBreakdown* SharedLayout::Breakdown(std::byte* base, int member) const {
  static_assert(sizeof(trace::StepBreakdown) <= 128);
  return reinterpret_cast<trace::StepBreakdown*>(base + breakdowns_ + 128 * static_cast<size_t>(member));
}
int64_t* SharedLayout::WeightBytes(std::byte* base, int rank) const {
  return reinterpret_cast<int64_t*>(base + weight_bytes_) + rank;
}
std::span<std::byte> SharedLayout::AllReduceArea(std::byte* base) const {
  return {base + all_reduce_, all_reduce_bytes_};
}

model::StepView SharedLayout::View(std::byte* base, const StepInput& in, model::BatchSequence* sequences) const {
  for (int q = 0; q < in.num_sequences; ++q) sequences[q] = in.sequences[q].kv;
  model::StepView view;
  view.rows = in.rows;
  view.num_rows = in.num_rows;
  view.sequences = sequences;
  view.num_sequences = in.num_sequences;
  view.pages = Pages(base);
  view.logits_rows = in.logits_rows;
  view.num_logits_rows = in.num_logits_rows;
  view.logits = Logits(base);
  view.ld_logits = ld_logits;
  return view;
}

void TreeOfRows(const StepInput& in, const StepSequence& s, DraftTree* tree) {
  tree->Reset(in.rows[s.first_row].token);
  for (int i = 1; i < s.num_rows; ++i) {
    const model::BatchRow& row = in.rows[s.first_row + i];
    tree->Add(row.parent - s.first_row, row.token);
  }
}

MemberStep::MemberStep(std::unique_ptr<model::StepContext> context, const SharedLayout& layout, std::byte* shared,
                       int num_tokens)
    : context_(std::move(context)),
      architecture_(&model::ForwardOf(context_->config().arch)),
      member_(context_->member()),
      layout_(layout),
      shared_(shared),
      num_tokens_(num_tokens),
      sampler_(num_tokens, context_->kernels()) {}

MemberStep::~MemberStep() = default;

void MemberStep::CopyAccepted(const StepInput& in) {
  if (in.num_copies == 0) return;
  const int num_layers = static_cast<int>(context_->weights().layers.size());
  model::GroupRange layers = context_->MyPart(num_layers);
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    for (int i = 0; i < in.num_copies; ++i) {
      const KvCopy& copy = in.copies[i];
      context_->kv().CopySlot(layer, layout_.Pages(shared_) + copy.sequence * layout_.pages_per_sequence,
                              copy.from_slot, copy.to_slot);
    }
  }
  model::Taps& taps = context_->team().taps;
  if (taps.layers.empty() || member_.thread() != 0) return;
  for (int i = 0; i < in.num_copies; ++i) {
    const KvCopy& copy = in.copies[i];
    std::copy_n(taps.At(copy.sequence, copy.from_slot), taps.ld(), taps.At(copy.sequence, copy.to_slot));
  }
}

void MemberStep::PickCandidates(const StepInput& in) {
  const model::RankShard& shard = context_->shard();
  model::GroupRange groups = context_->MyPart(context_->weights().output.weight.num_groups);
  const int first = shard.vocab.begin + groups.begin * 16;
  const int count = std::min({shard.vocab.end - first, num_tokens_ - first, (groups.end - groups.begin) * 16});
  SharedLayout::Candidate* mine =
      layout_.Candidates(shared_, member_.rank() * member_.threads_per_rank() + member_.thread());
  for (int i = 0; i < in.num_logits_rows; ++i) {
    if (count <= 0) {  // more threads than groups: this one has no vocabulary
      mine[i] = {0, -1, 1};
      continue;
    }
    kernels::ArgmaxResult best =
        context_->kernels().argmax(layout_.Logits(shared_) + i * layout_.ld_logits + first, count);
    mine[i] = {best.value, best.index < 0 ? -1 : first + best.index, best.finite};
  }
}

// Members hold ascending parts of the vocabulary, so the first of equal values has the smaller id.
void MemberStep::CombineGreedy(const StepInput& in) {
  StepOutput* out = layout_.Output(shared_);
  const int num_members = member_.world_size() * member_.threads_per_rank();
  for (int q = 0; q < in.num_sequences; ++q) {
    const StepSequence& s = in.sequences[q];
    if (NeedsSampler(s.sampling)) continue;
    for (int i = s.first_logits_idx; i < s.first_logits_idx + s.num_logits_rows; ++i) {
      SharedLayout::Candidate best = {0, -1, 1};
      bool finite = context_->first_bad_layer(in.logits_rows[i]) < 0;
      for (int m = 0; m < num_members; ++m) {
        const SharedLayout::Candidate& c = layout_.Candidates(shared_, m)[i];
        finite = finite && c.finite;
        if (c.token >= 0 && (best.token < 0 || c.value > best.value)) best = c;
      }
      out->tokens[i] = finite ? best.token : -1;
    }
  }
}

void MemberStep::SampleRow(const StepInput& in, const StepSequence& s, int logits_idx) {
  const int row = in.logits_rows[logits_idx];
  const int32_t* history = layout_.History(shared_, s.slot);
  int32_t path[kMaxTreeRows];
  int path_length = 0;
  if (s.is_tree) {
    TreeOfRows(in, s, &tree_);
    path_length = tree_.PathTokens(row - s.first_row, path);
  }
  SampleRequest request = {};
  request.logits = layout_.Logits(shared_) + logits_idx * layout_.ld_logits;
  request.vocab = num_tokens_;
  request.spec = &s.sampling;
  request.position = in.rows[row].position + 1;
  request.prompt_tokens = {history, static_cast<size_t>(s.num_prompt_tokens)};
  request.output_tokens = {history + s.num_prompt_tokens, static_cast<size_t>(s.num_output_tokens)};
  request.path_tokens = {path, static_cast<size_t>(path_length)};
  SampleResult result = sampler_.Sample(request);
  const bool finite = result.finite && context_->first_bad_layer(row) < 0;
  layout_.Output(shared_)->tokens[logits_idx] = finite ? result.token : -1;
}

// Rows that need the sampler are dealt out to the members, since each needs the whole vocabulary.
void MemberStep::SampleRows(const StepInput& in) {
  const int num_members = member_.world_size() * member_.threads_per_rank();
  const int me = member_.rank() * member_.threads_per_rank() + member_.thread();
  for (int q = 0; q < in.num_sequences; ++q) {
    const StepSequence& s = in.sequences[q];
    if (!NeedsSampler(s.sampling)) continue;
    for (int i = s.first_logits_idx; i < s.first_logits_idx + s.num_logits_rows; ++i) {
      if (i % num_members == me) SampleRow(in, s, i);
    }
  }
}

void MemberStep::Digest(const StepInput& in) {
  uint64_t hash = context_->hidden_hash() ^ (in.step * 0x9e3779b97f4a7c15ull);
  auto mix = [&hash](int32_t value) { hash = (hash ^ static_cast<uint32_t>(value)) * 0x100000001b3ull; };
  const StepOutput* out = layout_.Output(shared_);
  for (int q = 0; q < in.num_sequences; ++q) {
    const StepSequence& s = in.sequences[q];
    if (s.num_logits_rows == 0) continue;
    const std::span<const int32_t> sampled(out->tokens + s.first_logits_idx, static_cast<size_t>(s.num_logits_rows));
    if (!s.is_tree) {
      mix(sampled.back());
      continue;
    }
    TreeOfRows(in, s, &tree_);
    WalkResult walk = Walk(tree_, sampled);
    for (int i = 0; i < walk.num_emitted; ++i) {
      mix(walk.rows[i]);
      mix(walk.tokens[i]);
    }
  }
  member_.PublishDigest(hash);
  published_step_ = in.step;
  has_published_ = true;
}

bool MemberStep::CheckDigests() {
  if (!has_published_ || member_.thread() != 0) return true;
  has_published_ = false;
  return member_.CheckDigests(published_step_);
}

bool MemberStep::CheckAgreement() {
  return member_.SyncWorld(comm::SyncOp::kDigest) && CheckDigests();
}

bool MemberStep::Run(int parity) {
  model::StepContext& c = *context_;
  c.Stamp(trace::Owner::kHostGap);
  const StepInput& in = *layout_.Input(shared_, parity);
  const uint64_t kernels_before = c.num_kernel_calls(), sums_before = c.num_all_reduces();
  if (member_.thread() == 0 && !member_.FaultPoint(in.step)) return false;
  c.fault_corrupt = member_.FaultHere(comm::FaultKind::kCorrupt, in.step);
  c.fault_round = member_.FaultRounds(in.step) && in.sequences[0].is_tree != 0;
  CopyAccepted(in);
  if (in.num_copies > 0 && !c.SyncRank()) return false;

  model::BatchSequence sequences[kMaxStepSequences];
  model::StepView view = layout_.View(shared_, in, sequences);
  view.save_taps = in.save_taps != 0;
  c.Begin(view);
  if (!architecture_->forward(c)) return false;
  // The syncs of this step lie between the digests of the last one and here.
  if (!CheckDigests()) return false;

  PickCandidates(in);
  c.Stamp(trace::Owner::kSample);
  if (!member_.SyncWorld(comm::SyncOp::kLogits)) return false;
  c.Stamp(trace::Owner::kAllReduceWait);
  SampleRows(in);
  if (member_.is_leader()) {
    CombineGreedy(in);
    for (int i = 0; i < in.num_logits_rows; ++i) {
      int layer = c.first_bad_layer(in.logits_rows[i]);
      layout_.Output(shared_)->bad_layer[i] = layer >= 0 ? layer : static_cast<int>(c.config().num_layers);
    }
  }
  c.Stamp(trace::Owner::kSample);
  // The rows that others sampled, and the greedy ones of the leader.
  if (!member_.SyncWorld(comm::SyncOp::kEnd)) return false;
  c.Stamp(trace::Owner::kAllReduceWait);
  if (member_.thread() == 0) Digest(in);
  c.Stamp(trace::Owner::kSample);
  c.watch().EndStep();
  census_ = {c.num_kernel_calls() - kernels_before, c.num_all_reduces() - sums_before + 1};  // and the logits' exchange
  *layout_.Breakdown(shared_, member_.rank() * member_.threads_per_rank() + member_.thread()) = c.watch().breakdown();
  return true;
}

}  // namespace lockstep::step
