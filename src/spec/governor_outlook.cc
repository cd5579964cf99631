// What the governor expects of a drafter: before it runs, and of what it proposed.
#include <algorithm>
#include <functional>

#include "spec/governor.h"

namespace lockstep::spec {

bool Governor::Hopeless(int drafter, const RequestState& state, double draft_secs) const {
  const int n = static_cast<int>(round_.size());
  const auto d = static_cast<size_t>(drafter);
  const double chance = std::min(0.995, drafters_[d].acceptance.MostCalibrated() * state.ratios[d].Ratio());
  // An endless chain of such tokens for the price of one row and nothing for the others.
  const double gained_secs = chance / (1 - chance) * plain_mean_secs_ / n;
  return gained_secs < draft_secs + costs_.Predict(n, n + 1, context_, plain_) - plain_mean_secs_;
}

// A row is worth its cost if it brings more tokens per second than the round has; the round has at least plain's.
void Governor::FindMinReach() {
  constexpr int kEvery = 32;
  const int64_t now = counters_.rounds + counters_.plain_steps;
  if (min_reach_at_ >= 0 && now < min_reach_at_ + kEvery) return;
  min_reach_at_ = now;
  const int n = static_cast<int>(round_.size());
  // The cheapest further row: over stretches, since single steps of the cost are noise.
  double cheapest = plain_mean_secs_;
  for (int rows = n + 1, more = 4; rows + more <= n + options_.max_nodes; rows += more) {
    const double step = costs_.Predict(n, rows + more, context_, plain_) - costs_.Predict(n, rows, context_, plain_);
    cheapest = std::min(cheapest, step / more);
  }
  // A drafter may think too little of its tokens, by up to a half.
  min_reach_ = static_cast<float>(std::clamp(0.5 * n * cheapest / plain_mean_secs_, 0.0, 0.25));
}

// What the claims are worth: calibrated, and the request's own ratio on top.
void Governor::Believe(const RequestState& state, Proposal* p) const {
  const int rows = p->tree.num_rows();
  p->reach.assign(static_cast<size_t>(rows), 1.0f);
  const Acceptance& acceptance = drafters_[static_cast<size_t>(p->drafter)].acceptance;
  const double ratio = state.ratios[static_cast<size_t>(p->drafter)].Ratio();
  for (int row = 1; row < rows; ++row) {
    double chance = p->claimed[static_cast<size_t>(row)];
    if (options_.learns) chance = std::min(0.995, acceptance.Calibrated(chance) * ratio);
    const auto parent = static_cast<size_t>(p->tree.parents[row]);
    p->reach[static_cast<size_t>(row)] = static_cast<float>(p->reach[parent] * chance);
  }
}

double Governor::ScoreOf(const Proposal& proposal) const {
  const int n = static_cast<int>(round_.size());
  std::vector<float> reach(proposal.reach.begin() + 1, proposal.reach.end());
  std::sort(reach.begin(), reach.end(), std::greater<>());
  double tokens = n, best = n / (draft_secs_ + plain_mean_secs_);
  for (size_t k = 0; k < reach.size(); ++k) {
    tokens += reach[k];
    best = std::max(best, tokens / (draft_secs_ + costs_.Predict(n, n + 1 + static_cast<int>(k), context_, plain_)));
  }
  return best;
}

Governor::Outlook Governor::Expect(int drafter, int num_requests, double context) const {
  const Acceptance& acceptance = drafters_[static_cast<size_t>(drafter)].acceptance;
  const double plain = plain_.Mean(num_requests, context);
  const double draft = costs_.PredictDraft(drafter), hits = acceptance.used_rate();
  Outlook best{0, num_requests / plain};
  double tokens = num_requests, survival = hits;
  for (int k = 1; k <= std::min(options_.max_nodes, kMaxReportedDepth); ++k) {
    survival *= acceptance.Conditional(k);
    tokens += survival;
    const double step = costs_.Predict(num_requests, num_requests + k, context, plain_);
    const double score = tokens / (draft + hits * step + (1 - hits) * plain);
    if (score > best.tokens_per_second) best = {k, score};
  }
  return best;
}

}  // namespace lockstep::spec
