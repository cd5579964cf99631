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

bool StepContext::TapsOutput() const {
  const std::vector<int>& layers = o_.team->taps.layers;
  return view_.save_taps && std::find(layers.begin(), layers.end(), int(o_.config->num_layers) - 1) != layers.end();
}

void StepContext::NormInPlace(float* x, int d, const float* weight) {
  kernels::NormArgs args = {};
  args.x = args.out = x;
  args.weight = weight;
  args.eps = o_.config->rms_norm_eps;
  args.d = d;
  (void)kernels().add_norm(args);  // what is not finite stays so, and the next norm finds it
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
    if (head.norm_before_fc || head.fc_norm) {
      const auto all = static_cast<int>(head.tap_layers.size()) * ht;
      std::copy_n(taps, all, taps_.data());
      if (head.norm_before_fc) NormInPlace(taps_.data(), all, w.taps_norm);
      for (size_t t = 0; t < w.tap_norms.size(); ++t)
        NormInPlace(&taps_[t * static_cast<size_t>(ht)], ht, w.tap_norms[t]);
      taps = taps_.data();
    }
    std::copy(taps + inputs.begin, taps + inputs.end, to.Row(r));
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
    EmbedRow(r, to.Row(r));
    NormInPlace(to.Row(r), d, embedding_norm);
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
