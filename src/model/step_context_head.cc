// What a target does for draft heads, and what a head's rows begin with.
#include <algorithm>

#include "comm/group.h"
#include "kernels/pack.h"
#include "model/config.h"
#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"

namespace lockstep::model {

void StepContext::SaveTap(int layer) {
  if (!view_.save_taps || (private_ && o_.member->thread() != 0)) return;
  Taps& taps = o_.team->taps;
  for (size_t t = 0; t < taps.layers.size(); ++t) {
    if (taps.layers[t] != layer) continue;
    const GroupRange rows = NormRows();
    for (int r = rows.begin; r < rows.end; ++r) {
      const BatchRow& row = view_.rows[r];
      // Of a chunk longer than the ring its last positions; a tree is never that wide.
      if (view_.num_rows > kTapSlots && r + kTapSlots < view_.num_rows) continue;
      const BatchSequence& sequence = view_.sequences[row.sequence];
      std::copy_n(X(r), taps.d, taps.At(sequence.taps_idx, row.slot) + static_cast<int64_t>(t) * taps.d);
    }
  }
}

bool StepContext::LoadTaps() {
  const Eagle3Config& head = o_.config->eagle3;
  const HeadWeights& w = o_.weights->head;
  Activations& to = private_ ? mine_ : o_.team->features;
  const int ht = static_cast<int>(head.target_hidden);
  const UnitRange inputs = shard_->fc;  // this rank's columns of all taps side by side
  const GroupRange rows = NormRows();
  for (int r = rows.begin; r < rows.end; ++r) {
    const BatchRow& row = view_.rows[r];
    const float* taps = o_.taps->At(view_.sequences[row.sequence].taps_idx, row.feature);
    for (int t = inputs.begin / ht; t * ht < inputs.end; ++t) {
      const float* tap = taps + t * ht;
      if (head.fc_norm) {
        std::copy_n(tap, ht, tap_.data());
        kernels::NormArgs args = {};
        args.x = tap_.data();
        args.weight = w.tap_norms[static_cast<size_t>(t)];
        args.eps = o_.config->rms_norm_eps;
        args.d = ht;
        args.out = tap_.data();
        (void)kernels().add_norm(args);
        tap = tap_.data();
      }
      const int begin = std::max(inputs.begin, t * ht), end = std::min(inputs.end, (t + 1) * ht);
      std::copy(tap + begin - t * ht, tap + end - t * ht, to.Row(r) + begin - inputs.begin);
    }
    Quantise(to.Row(r), inputs.count(), to, r);
    if (w.fc_bias != nullptr) {
      std::copy_n(w.fc_bias, o_.config->hidden, X(r));
    } else {
      std::fill_n(X(r), o_.config->hidden, 0.0f);
    }
    if (!private_ || o_.member->thread() == 0) o_.team->bad_layer[static_cast<size_t>(r)] = -1;
  }
  input_ = &to;
  input_rows_ = view_.num_rows;
  return private_ || SyncRank();
}

void StepContext::LoadHidden() {
  const GroupRange rows = NormRows();
  for (int r = rows.begin; r < rows.end; ++r) {
    std::copy_n(&o_.team->hidden[static_cast<size_t>(view_.rows[r].feature * o_.team->ld_x)], o_.config->hidden, X(r));
    if (!private_ || o_.member->thread() == 0) o_.team->bad_layer[static_cast<size_t>(r)] = -1;
  }
}

bool StepContext::NormPair(const float* embedding_norm, const float* hidden_norm) {
  if (!ResolvePending()) return false;
  Activations& to = private_ ? mine_ : o_.team->normed;
  const GroupRange rows = NormRows();
  const int d = static_cast<int>(o_.config->hidden);
  for (int r = rows.begin; r < rows.end; ++r) {
    kernels::NormArgs args = {};
    args.x = to.Row(r);
    EmbedRow(r, args.x);
    args.weight = embedding_norm;
    args.eps = o_.config->rms_norm_eps;
    args.d = d;
    args.out = to.Row(r);
    (void)kernels().add_norm(args);
    AddNormRow(r, hidden_norm, to.Row(r) + d, 0);
    Quantise(to.Row(r), 2 * d, to, r);
  }
  Stamp(trace::Owner::kOther);
  has_pending_ = false;
  input_ = &to;
  input_rows_ = view_.num_rows;
  return private_ || SyncRank();
}

void StepContext::SaveHidden(int logits_idx, const float* normed) {
  if (o_.config->arch != kHeadArch || (private_ && o_.member->thread() != 0)) return;
  const float* from = o_.config->eagle3.norm_output ? normed : X(view_.logits_rows[logits_idx]);
  std::copy_n(from, o_.config->hidden,
              &o_.team->hidden[static_cast<size_t>((view_.hidden_out + logits_idx) * o_.team->ld_x)]);
}

}  // namespace lockstep::model
