#include "step/draft_step.h"

#include <algorithm>
#include <cmath>

#include "comm/group.h"
#include "kernels/cpu/kernels.h"
#include "model/registry.h"
#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"
#include "step/noise.h"

namespace lockstep::step {
namespace {

// A token whose z lies so far below the largest is drawn once in 8,000 times as often as that one.
constexpr float kReach = 9.0f;

bool Before(const DraftPart::Best& a, const DraftPart::Best& b) {
  return a.value > b.value || (a.value == b.value && a.token < b.token);
}

// Whether a value of at most `bound` may come among the best.
bool MayEnter(const DraftPart& part, float bound) {
  return part.num < kDraftTopK || bound >= part.best[kDraftTopK - 1].value;
}

void Insert(DraftPart* part, const DraftPart::Best& entry) {
  if (part->num == kDraftTopK && !Before(entry, part->best[kDraftTopK - 1])) return;
  int at = part->num < kDraftTopK ? part->num++ : kDraftTopK - 1;
  for (; at > 0 && Before(entry, part->best[at - 1]); --at) part->best[at] = part->best[at - 1];
  part->best[at] = entry;
}

}  // namespace

DraftStep::DraftStep(std::unique_ptr<model::StepContext> context, const SharedLayout& layout, std::byte* shared,
                     std::span<const int32_t> draft_to_target, int num_tokens)
    : context_(std::move(context)),
      architecture_(model::ForwardOf(context_->config().arch)),
      member_(context_->member()),
      layout_(layout),
      shared_(shared),
      draft_to_target_(draft_to_target),
      num_tokens_(num_tokens) {
  const model::GroupRange groups = context_->MyPart(context_->weights().output.weight.num_groups);
  work_.resize(static_cast<size_t>(groups.end - groups.begin) * 16);
}

DraftStep::~DraftStep() = default;

void DraftStep::FindLargest(int logits_idx, const Slice& slice, DraftPart* part) {
  const float* logits = layout_.Logits(shared_) + logits_idx * layout_.ld_logits + slice.first;
  const kernels::ArgmaxResult top = context_->kernels().argmax(logits, slice.count);
  *part = {};
  part->largest = top.finite ? logits[top.index] : NAN;
}

void DraftStep::PickGreedy(int logits_idx, const Slice& slice, DraftPart* part) {
  const float* logits = layout_.Logits(shared_) + logits_idx * layout_.ld_logits + slice.first;
  for (int i = 0; i < slice.count; ++i) work_[static_cast<size_t>(i)] = logits[i] - part->largest;
  context_->kernels().exp(work_.data(), work_.data(), static_cast<int>(work_.size()));
  for (int i = 0; i < slice.count; ++i) part->sum_exp += work_[static_cast<size_t>(i)];
  for (int i = 0; i < slice.count; ++i) {
    if (!MayEnter(*part, logits[i])) continue;
    const int32_t token = TargetOf(slice.first + i);
    if (token < num_tokens_) Insert(part, {logits[i], token});
  }
}

// With the target's own noise. Only tokens that have a chance: the noise would have to lift the others by kReach and more.
// Measured from the largest of all parts, so that how the vocabulary is cut decides nothing.
void DraftStep::PickSampled(const StepInput& in, const StepSequence& s, int logits_idx, const Slice& slice,
                            float largest, DraftPart* part) {
  const float* logits = layout_.Logits(shared_) + logits_idx * layout_.ld_logits + slice.first;
  const float inverse = 1.0f / s.sampling.temperature;
  const float least = largest - kReach * s.sampling.temperature;
  const int64_t position = in.rows[in.logits_rows[logits_idx]].position + s.noise_offset;
  for (int i = 0; i < slice.count; ++i) {
    if (logits[i] < least) continue;
    const float z = logits[i] * inverse;
    const int32_t token = TargetOf(slice.first + i);
    if (token >= num_tokens_ || !MayEnter(*part, z + kMaxGumbel)) continue;
    const uint32_t word = NoiseBlock(s.sampling.seed, position, token / 4).word[token % 4];
    if (MayEnter(*part, z + GumbelBound(word))) Insert(part, {z + GumbelFromWord(word), token});
  }
}

bool DraftStep::PickCandidates(const StepInput& in) {
  const model::RankShard& shard = context_->shard();
  const model::GroupRange groups = context_->MyPart(context_->weights().output.weight.num_groups);
  Slice slice;
  slice.first = shard.vocab.begin + groups.begin * 16;
  slice.count = std::max(0, std::min(shard.vocab.end - slice.first, (groups.end - groups.begin) * 16));
  const int me = member_.rank() * member_.threads_per_rank() + member_.thread();
  DraftPart* mine = layout_.DraftParts(shared_, me);
  bool any_sampled = false;
  for (int q = 0; q < in.num_sequences; ++q) any_sampled = any_sampled || !in.sequences[q].sampling.greedy();
  for (int i = 0; i < in.num_logits_rows; ++i) {
    if (slice.count > 0) {
      FindLargest(i, slice, &mine[i]);
    } else {  // more threads than groups: this one has no vocabulary
      mine[i] = {-INFINITY, 0, 0, {}};
    }
  }
  if (any_sampled && !member_.SyncWorld(comm::SyncOp::kLogits)) return false;
  for (int q = 0; q < in.num_sequences && slice.count > 0; ++q) {
    const StepSequence& s = in.sequences[q];
    for (int i = s.first_logits_idx; i < s.first_logits_idx + s.num_logits_rows; ++i) {
      if (std::isnan(mine[i].largest)) continue;
      if (s.sampling.greedy()) {
        PickGreedy(i, slice, &mine[i]);
        continue;
      }
      float largest = -INFINITY;
      for (int m = 0; m < member_.world_size() * member_.threads_per_rank(); ++m)
        largest = std::max(largest, layout_.DraftParts(shared_, m)[i].largest);
      PickSampled(in, s, i, slice, largest, &mine[i]);
    }
  }
  return true;
}

bool DraftStep::Run(int parity) {
  model::StepContext& c = *context_;
  const StepInput& in = *layout_.Input(shared_, parity);
  model::BatchSequence sequences[kMaxStepSequences];
  model::StepView view = layout_.View(shared_, in, sequences);
  view.num_path_rows = in.num_path_rows;
  view.fused = in.fused != 0;
  view.hidden_out = in.hidden_out;
  c.Begin(view);
  if (!architecture_.forward(c)) return false;
  return PickCandidates(in) && member_.SyncWorld(comm::SyncOp::kLogits);
}

int MergeParts(std::span<const DraftPart* const> parts, bool sampled, std::span<DraftCandidate> out) {
  float largest = -INFINITY;
  for (const DraftPart* part : parts) {
    if (std::isnan(part->largest)) return 0;
    largest = std::max(largest, part->largest);
  }
  DraftPart all = {};
  double sum = 0;
  for (const DraftPart* part : parts) {
    sum += static_cast<double>(part->sum_exp) * std::exp(static_cast<double>(part->largest - largest));
    for (int i = 0; i < part->num; ++i) Insert(&all, part->best[i]);
  }
  if (all.num == 0) return 0;
  if (sampled) {
    // With the noise drawn, the token is the one of the largest value. How sure that is shows in how far the others lie
    // behind; those beyond the best few hardly count.
    largest = all.best[0].value;
    sum = 0;
    for (int i = 0; i < all.num; ++i) sum += std::exp(static_cast<double>(all.best[i].value - largest));
  }
  const int num = std::min(all.num, static_cast<int>(out.size()));
  for (int i = 0; i < num; ++i) {
    const double share = std::exp(static_cast<double>(all.best[i].value - largest)) / sum;
    out[static_cast<size_t>(i)] = {all.best[i].token, static_cast<float>(std::min(1.0, share))};
  }
  return num;
}

}  // namespace lockstep::step
