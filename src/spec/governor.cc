#include "spec/governor.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace lockstep::spec {

const char* ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kNoPlainTime:
      return "plain: nothing measured yet to compare with";
    case Reason::kPlainProbe:
      return "plain: to measure plain steps again";
    case Reason::kLedger:
      return "plain: the ledger does not cover the worst case";
    case Reason::kOff:
      return "plain: drafting lost, the next try is not due";
    case Reason::kNoProposal:
      return "plain: nothing proposed";
    case Reason::kLoses:
      return "plain: no row is worth its cost";
    case Reason::kPays:
      return "draft: it pays";
    case Reason::kRetry:
      return "draft: to see whether it pays by now";
  }
  return "?";
}

Governor::Governor(const Clock* clock, const GovernorOptions& options)
    : clock_(clock), options_(options), ledger_(options.ledger) {
  LS_CHECK(clock != nullptr && options.max_nodes >= 1 && options.max_nodes <= step::kMaxTreeNodes);
}

void Governor::AddPrepared(int rows, double secs) {
  costs_.AddPrepared(rows, secs);
  if (rows != 1) return;
  plain_.Add(1, 0, secs);
}

int Governor::AddDrafter(std::string name) {
  drafters_.push_back({std::move(name), {}, 0, kFirstRetry, false, false});
  return num_drafters() - 1;
}

void Governor::StartRequest(int64_t id) {
  rest_rounds_ = 0;
  requests_.push_back({id, std::vector<RequestAcceptance>(drafters_.size())});
  // Another text: what lost on the last one is tried a little sooner.
  for (DrafterState& d : drafters_) d.retry_after = std::max(kFirstRetry, d.retry_after / 2);
}

void Governor::EndRequest(int64_t id) {
  std::erase_if(requests_, [id](const RequestState& r) { return r.id == id; });
}

Governor::RequestState& Governor::StateOf(int64_t id) {
  auto it = std::find_if(requests_.begin(), requests_.end(), [id](const RequestState& r) { return r.id == id; });
  LS_CHECK(it != requests_.end());
  return *it;
}

void Governor::BeginRound(std::span<const RoundRequest> requests) {
  LS_CHECK(!requests.empty());
  start_ = clock_->Now();
  round_.assign(requests.begin(), requests.end());
  const size_t n = round_.size();
  next_drafter_.assign(n, 0);
  best_.resize(std::max(best_.size(), n));
  for (size_t i = 0; i < n; ++i) best_[i].drafter = -1;
  draft_secs_ = context_ = worst_secs_ = 0;
  rows_ = static_cast<int>(n);
  any_run_ = false;
  for (DrafterState& d : drafters_) d.ran = false;
  for (const RoundRequest& r : round_) context_ += static_cast<double>(r.context);

  const int num = static_cast<int>(n);
  resting_ = rest_rounds_ > 0 && rest_of_ == num;
  rest_rounds_ = resting_ ? rest_rounds_ - 1 : 0;
  if (resting_) return;
  if (!plain_.Known(num)) {
    reason_ = Reason::kNoPlainTime;
    return;
  }
  plain_secs_ = plain_.Lower(num, context_);
  plain_mean_secs_ = plain_.Mean(num, context_);
  if (!ledger_.started()) ledger_.Start(plain_secs_);
  FindMinReach();
  if (forced_plain_ == 0 && rounds_since_probe_ >= RoundsPerProbe()) forced_plain_ = 2;
  if (forced_plain_ > 0) {
    reason_ = Reason::kPlainProbe;
    return;
  }
  reason_ = Reason::kOff;
}

int Governor::RoundsPerProbe() const {
  if (cost_secs_ <= 0) return kMostRoundsPerProbe;
  const double gain = credit_secs_ / cost_secs_ - 1;
  return static_cast<int>(
      std::clamp(kRoundsPerProbeAndGain * gain, double{kLeastRoundsPerProbe}, double{kMostRoundsPerProbe}));
}

double Governor::tokens_per_second() const {
  if (plain_mean_secs_ <= 0) return 0;
  const double over_plain = cost_secs_ > 0 ? std::max(1.0, credit_secs_ / cost_secs_) : 1.0;
  return over_plain * static_cast<double>(round_.size()) / plain_mean_secs_;
}

bool Governor::RetryDue(const DrafterState& drafter, double round_secs) const {
  if (drafter.plain_since < drafter.retry_after) return false;
  if (drafter.plain_since >= kLongestWait) return true;
  return round_secs - plain_mean_secs_ <= kRetryShare * plain_mean_secs_ * static_cast<double>(drafter.plain_since);
}

int Governor::budget(int i) const {
  return std::min(round_[static_cast<size_t>(i)].max_nodes, options_.max_nodes);
}

int Governor::NextDrafter(int i) {
  if (resting_ || reason_ == Reason::kNoPlainTime || reason_ == Reason::kPlainProbe || budget(i) < 1) return -1;
  const int n = static_cast<int>(round_.size());
  int& next = next_drafter_[static_cast<size_t>(i)];
  for (; next < num_drafters(); ++next) {
    DrafterState& d = drafters_[static_cast<size_t>(next)];
    const double draft = costs_.PredictDraft(next);
    if (!ledger_.Allows(plain_secs_, costs_.Worst(n, n + 1, context_, draft_secs_ + draft, plain_))) {
      if (reason_ == Reason::kOff) reason_ = Reason::kLedger;
      continue;
    }
    const double least = draft_secs_ + draft + costs_.Predict(n, n + 1, context_, plain_);
    if (options_.learns && draft > kFreeShare * plain_secs_ && !RetryDue(d, least)) {
      // Worth its time only if it promises more than plain, and more than what is on the table.
      const Outlook outlook = Expect(next, n, context_);
      const double already = std::max(n / plain_mean_secs_, best_[static_cast<size_t>(i)].score);
      if (outlook.nodes == 0 || (best_[static_cast<size_t>(i)].drafter >= 0 && outlook.tokens_per_second < already))
        continue;
    }
    if (options_.learns && Hopeless(next, StateOf(round_[static_cast<size_t>(i)].id), draft) && !RetryDue(d, least))
      continue;
    any_run_ = d.ran = true;
    draft_start_ = clock_->Now();
    return next++;
  }
  return -1;
}

void Governor::Offer(int i, int drafter, const step::DraftTree& tree, std::span<const float> probability, bool opened) {
  LS_CHECK(tree.num_nodes <= budget(i) && static_cast<int>(probability.size()) == tree.num_rows());
  const double secs = clock_->Now() - draft_start_;
  draft_secs_ += secs;
  if (!opened) costs_.AddDraft(drafter, secs);
  if (tree.num_nodes == 0) return;
  Proposal& p = offered_;
  p.drafter = drafter;
  p.tree = tree;
  p.claimed.assign(probability.size(), 1.0f);
  for (int row = 1; row < tree.num_rows(); ++row) {
    const float parent = probability[static_cast<size_t>(tree.parents[row])];
    const float own = probability[static_cast<size_t>(row)];
    p.claimed[static_cast<size_t>(row)] = parent > 0 ? std::clamp(own / parent, 0.0f, 1.0f) : 0.0f;
  }
  Believe(StateOf(round_[static_cast<size_t>(i)].id), &p);
  p.score = ScoreOf(p);
  Proposal& best = best_[static_cast<size_t>(i)];
  if (best.drafter < 0 || p.score > best.score) std::swap(best, p);
}

// expected: tokens of each request in a round of `secs`.
bool Governor::TooSlowForSomebody(double secs, std::span<const double> expected) const {
  if (expected.size() < 2) return false;
  const double most = (1 + options_.max_slowdown) * plain_mean_secs_;
  return std::any_of(expected.begin(), expected.end(), [&](double tokens) { return secs > most * tokens; });
}

std::span<const RequestDecision> Governor::Decide() {
  const size_t n = round_.size();
  decisions_.resize(n);
  candidates_.clear();
  for (size_t i = 0; i < n; ++i) {
    decisions_[i].drafter = -1;
    decisions_[i].rows.clear();
    const Proposal& p = best_[i];
    if (p.drafter < 0) continue;
    for (int row = 1; row < p.tree.num_rows(); ++row)
      candidates_.push_back({p.reach[static_cast<size_t>(row)], static_cast<int>(i), row});
  }
  if (candidates_.empty()) {
    if (!any_run_) return decisions_;
    reason_ = Reason::kNoProposal;
    draft_secs_ = clock_->Now() - start_;  // the governor's own time counts too
    return decisions_;
  }
  // Where the gain per row is highest. A parent is reached at least as often as its child and stands before it.
  std::stable_sort(candidates_.begin(), candidates_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.reach > b.reach; });
  if (candidates_.size() > kMaxGovernedRows) candidates_.resize(kMaxGovernedRows);

  const int num = static_cast<int>(n);
  std::vector<double> expected(n, 1.0);
  double tokens = num, best_score = 0, best_secs = 0;
  size_t best = 0;
  bool any_allowed = false;
  for (size_t k = 0; k < candidates_.size(); ++k) {
    tokens += candidates_[k].reach;
    expected[static_cast<size_t>(candidates_[k].request)] += candidates_[k].reach;
    const int rows = num + static_cast<int>(k) + 1;
    const double worst = costs_.Worst(num, rows, context_, draft_secs_, plain_);
    if (!ledger_.Allows(plain_secs_, worst)) continue;
    any_allowed = true;
    const double secs = draft_secs_ + costs_.Predict(num, rows, context_, plain_);
    if (TooSlowForSomebody(secs, expected)) continue;
    const double score = tokens / secs;
    if (score <= best_score) continue;
    best_score = score;
    best_secs = secs;
    best = k + 1;
    worst_secs_ = worst;
  }
  const double plain_score = num / (draft_secs_ + plain_mean_secs_);
  const bool pays = best > 0 && (!options_.learns || best_score > kMargin * plain_score);
  bool retry = false;
  for (size_t i = 0; i < n; ++i) {
    if (best_[i].drafter < 0) continue;
    DrafterState& d = drafters_[static_cast<size_t>(best_[i].drafter)];
    d.loses = !pays;
    retry = retry || RetryDue(d, best_secs);
  }
  if (best == 0 || (!pays && !retry)) {
    reason_ = any_allowed ? Reason::kLoses : Reason::kLedger;
    worst_secs_ = 0;
    draft_secs_ = clock_->Now() - start_;
    return decisions_;
  }
  reason_ = pays ? Reason::kPays : Reason::kRetry;
  for (size_t k = 0; k < best; ++k) {
    RequestDecision& d = decisions_[static_cast<size_t>(candidates_[k].request)];
    d.drafter = best_[static_cast<size_t>(candidates_[k].request)].drafter;
    d.rows.push_back(candidates_[k].row);
  }
  for (RequestDecision& d : decisions_) std::sort(d.rows.begin(), d.rows.end());
  rows_ = num + static_cast<int>(best);
  return decisions_;
}

// The rows that were verified, as a tree of their own, against the path.
void Governor::Learn(int i, const RequestOutcome& outcome) {
  const RequestDecision& decision = decisions_[static_cast<size_t>(i)];
  const Proposal& p = best_[static_cast<size_t>(i)];
  DrafterState& d = drafters_[static_cast<size_t>(decision.drafter)];
  RequestAcceptance& ratio = StateOf(round_[static_cast<size_t>(i)].id).ratios[static_cast<size_t>(decision.drafter)];
  std::vector<int32_t> row_of(static_cast<size_t>(p.tree.num_rows()), -1), path;
  std::vector<float> claimed = {1.0f};
  step::DraftTree kept;
  kept.Reset(p.tree.tokens[0]);
  row_of[0] = 0;
  for (int32_t row : decision.rows) {
    row_of[static_cast<size_t>(row)] = kept.Add(row_of[static_cast<size_t>(p.tree.parents[row])], p.tree.tokens[row]);
    claimed.push_back(p.claimed[static_cast<size_t>(row)]);
  }
  for (int32_t row : outcome.accepted_rows) path.push_back(row_of[static_cast<size_t>(row)]);
  // The request's ratio is over what the calibration of before expected.
  int parent = 0;
  for (size_t depth = 0;; ++depth) {
    double expected = 0;
    for (int row = parent + 1; row < kept.num_rows(); ++row) {
      if (kept.parents[row] == parent) expected += d.acceptance.Calibrated(claimed[static_cast<size_t>(row)]);
    }
    if (expected == 0) break;
    ratio.Add(std::min(1.0, expected), depth < path.size());
    if (depth == path.size()) break;
    parent = path[depth];
  }
  d.acceptance.Add(kept, claimed, path);
  counters_.draft_rows += kept.num_nodes;
  counters_.accepted_rows += static_cast<int64_t>(path.size());
  for (size_t depth = 1; depth <= path.size(); ++depth) {
    ++counters_.accepted_at[std::min<size_t>(depth, kMaxReportedDepth)];
  }
}

void Governor::EndRound(std::span<const RequestOutcome> outcomes) {
  LS_CHECK(outcomes.size() == round_.size());
  const double secs = clock_->Now() - start_;
  const int n = static_cast<int>(round_.size());
  if (rows_ == n) {
    ++counters_.plain_steps;
    ledger_.AddPlain(plain_.Known(n) ? plain_secs_ : 0, draft_secs_);
    // The first plain step after another kind finds cold caches.
    plain_in_row_ = last_plain_of_ == n ? plain_in_row_ + 1 : 0;
    if (plain_in_row_ > 0 && (forced_plain_ > 0 || plain_in_row_ % kPlainSampleEvery == 1 || !plain_.Full(n))) {
      plain_.Add(n, context_, std::max(0.0, secs - draft_secs_));
      rounds_since_probe_ = 0;
    }
    last_plain_of_ = n;
    if (forced_plain_ > 0) --forced_plain_;
    for (DrafterState& d : drafters_) {
      if (d.ran) d.acceptance.AddProposal(false);
      // A try that brought no row is a try too.
      const bool tried = d.ran && d.plain_since >= d.retry_after && draft_secs_ > kFreeShare * plain_secs_;
      if (tried) d.retry_after = std::min(kLastRetry, 2 * d.retry_after);
      d.plain_since = tried ? 0 : d.plain_since + 1;
    }
    Rest();
    return;
  }
  ++counters_.rounds;
  ++rounds_since_probe_;
  last_plain_of_ = 0;
  costs_.Add(n, rows_, context_, std::max(0.0, secs - draft_secs_), plain_);
  LedgerRound round;
  round.plain_secs = plain_secs_;
  round.plain_mean_secs = plain_mean_secs_;
  round.num_requests = n;
  for (const RequestOutcome& o : outcomes) round.num_tokens += o.num_tokens;
  round.round_secs = secs;
  round.worst_secs = worst_secs_;
  constexpr double kKeep = 1 - 1.0 / 64;
  credit_secs_ = kKeep * credit_secs_ + plain_secs_ * static_cast<double>(round.num_tokens) / n;
  cost_secs_ = kKeep * cost_secs_ + std::min(secs, options_.ledger.machine_worsts * worst_secs_);
  ledger_.AddRound(round);
  for (int drafter = 0; drafter < num_drafters(); ++drafter) {
    DrafterState& d = drafters_[static_cast<size_t>(drafter)];
    if (!d.ran) continue;
    d.acceptance.AddProposal(std::any_of(decisions_.begin(), decisions_.end(),
                                         [&](const RequestDecision& r) { return r.drafter == drafter; }));
  }
  for (int i = 0; i < n; ++i) {
    const int drafter = decisions_[static_cast<size_t>(i)].drafter;
    if (drafter < 0) continue;
    DrafterState& d = drafters_[static_cast<size_t>(drafter)];
    if (d.plain_since > 0 || reason_ == Reason::kPays) {
      // A try that lost doubles the wait; one that pays starts it anew.
      if (reason_ == Reason::kRetry && d.loses) d.retry_after = std::min(kLastRetry, 2 * d.retry_after);
      if (reason_ == Reason::kPays) d.retry_after = kFirstRetry;
    }
    d.plain_since = 0;
    Learn(i, outcomes[static_cast<size_t>(i)]);
  }
}

// Nothing but time can change a round in which no drafter was run: the next ones need no look.
void Governor::Rest() {
  const bool none_ran = reason_ == Reason::kOff || reason_ == Reason::kLedger;
  if (resting_ || !none_ran || any_run_ || drafters_.empty()) return;
  rest_of_ = static_cast<int>(round_.size());
  rest_rounds_ = kRestRounds;
  for (const DrafterState& d : drafters_) {
    if (d.retry_after > d.plain_since)
      rest_rounds_ = static_cast<int>(std::min<int64_t>(rest_rounds_, d.retry_after - d.plain_since));
  }
}

}  // namespace lockstep::spec
