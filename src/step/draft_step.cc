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
  z_.resize(static_cast<size_t>(groups.end - groups.begin) * 16);
  exp_.resize(z_.size());
}

DraftStep::~DraftStep() = default;

void DraftStep::PickRow(const StepInput& in, const StepSequence& s, int logits_idx, int first, int count,
                        DraftPart* part) {
  const float* logits = layout_.Logits(shared_) + logits_idx * layout_.ld_logits + first;
  const kernels::ArgmaxResult top = context_->kernels().argmax(logits, count);
  *part = {};
  if (!top.finite) {
    part->largest = NAN;
    return;
  }
  const bool sampled = !s.sampling.greedy();
  const float inverse = sampled ? 1.0f / s.sampling.temperature : 1.0f;
  part->largest = logits[top.index] * inverse;
  for (int i = 0; i < count; ++i) {
    z_[static_cast<size_t>(i)] = logits[i] * inverse;
    exp_[static_cast<size_t>(i)] = z_[static_cast<size_t>(i)] - part->largest;
  }
  auto target_of = [&](int i) {
    return draft_to_target_.empty() ? first + i : draft_to_target_[static_cast<size_t>(first + i)];
  };
  if (!sampled) {
    context_->kernels().exp(exp_.data(), exp_.data(), static_cast<int>(exp_.size()));
    for (int i = 0; i < count; ++i) part->sum_exp += exp_[static_cast<size_t>(i)];
    for (int i = 0; i < count; ++i) {
      if (MayEnter(*part, z_[static_cast<size_t>(i)]) && target_of(i) < num_tokens_)
        Insert(part, {z_[static_cast<size_t>(i)], target_of(i)});
    }
    return;
  }
  // The target's own noise. Few tokens can still come among the best with the most that it can add.
  const int64_t position = in.rows[in.logits_rows[logits_idx]].position + s.noise_offset;
  auto consider = [&](int i) {
    const float z = z_[static_cast<size_t>(i)];
    const int32_t token = target_of(i);
    if (!MayEnter(*part, z + kMaxGumbel) || token >= num_tokens_) return;
    const uint32_t word = NoiseBlock(s.sampling.seed, position, token / 4).word[token % 4];
    if (MayEnter(*part, z + GumbelBound(word))) Insert(part, {z + GumbelFromWord(word), token});
  };
  // Those near the top first, so that the bar is high for the many others.
  constexpr float kNear = 4.0f;
  for (int i = 0; i < count; ++i)
    if (exp_[static_cast<size_t>(i)] >= -kNear) consider(i);
  for (int i = 0; i < count; ++i)
    if (exp_[static_cast<size_t>(i)] < -kNear) consider(i);
}

void DraftStep::PickCandidates(const StepInput& in) {
  const model::RankShard& shard = context_->shard();
  const model::GroupRange groups = context_->MyPart(context_->weights().output.weight.num_groups);
  const int first = shard.vocab.begin + groups.begin * 16;
  const int count = std::min(shard.vocab.end - first, (groups.end - groups.begin) * 16);
  DraftPart* mine = layout_.DraftParts(shared_, member_.rank() * member_.threads_per_rank() + member_.thread());
  for (int q = 0; q < in.num_sequences; ++q) {
    const StepSequence& s = in.sequences[q];
    for (int i = s.first_logits_idx; i < s.first_logits_idx + s.num_logits_rows; ++i) {
      if (count > 0) {
        PickRow(in, s, i, first, count, &mine[i]);
      } else {  // more threads than groups: this one has no vocabulary
        mine[i] = {-INFINITY, 0, 0, {}};
      }
    }
  }
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
  PickCandidates(in);
  return member_.SyncWorld(comm::SyncOp::kLogits);
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
