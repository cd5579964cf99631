#include "engine/speculation.h"

#include <algorithm>

#include "base/check.h"
#include "engine/drafting.h"
#include "spec/model_proposer.h"
#include "step/step_runner.h"

namespace lockstep::engine {
namespace {

// Between these a width's time is interpolated, until it was measured.
constexpr int kWidths[] = {2, 4, 8, kMaxSpecNodes + 1};
// From so many rows on, wider steps are not timed once rows cost this share of a plain step each.
constexpr int kFewRows = 4;
constexpr double kNoGain = 0.9;
// Of a proposal that is timed: a step that catches up, and one level.
constexpr int kDraftNodes = 2;
constexpr int kDraftTimes = 2;
constexpr int kTokensARound = 2;

}  // namespace

Speculation::Speculation(double max_slowdown, int64_t corpus_bytes, const LoadedDrafts* drafts)
    : max_slowdown_(max_slowdown), drafts_(drafts) {
  if (corpus_bytes > 0) corpus_ = std::make_unique<spec::SuffixCorpus>(corpus_bytes);
}

Status Speculation::Prepare(const Place& place, int plain_steps, const std::atomic<bool>& interrupted) {
  if (prepared()) return OkStatus();
  std::vector<Prepared> times;
  step::StepRunner& runner = *place.runner;
  const int committed = std::max(0, static_cast<int>(place.tokens.size()) - 1);
  auto time_step = [&](int rows) -> Status {
    step::DraftTree tree;
    tree.Reset(place.tokens.empty() ? 0 : place.tokens.back());
    for (int i = 1; i < rows; ++i) tree.Add(i - 1, i % runner.options().num_tokens);
    const double start = clock_.Now();
    step::StepInput& in = runner.input();
    step::AddTree(in, place.sequence, tree, committed, runner.pages_per_sequence());
    in.sequences[0].sampling = {};
    LS_RETURN_IF_ERROR(runner.Run());
    times.push_back({rows, clock_.Now() - start});
    return OkStatus();
  };
  auto stopped = [&interrupted] { return interrupted.load(std::memory_order_relaxed); };
  // One to warm up, one to measure the others against.
  for (int i = 0; i < 2 && !stopped(); ++i) LS_RETURN_IF_ERROR(time_step(1));
  const double warm = times.empty() ? 0 : times.back().secs;
  times.clear();
  for (int rows : kWidths) {
    if (rows > place.room || stopped()) break;
    LS_RETURN_IF_ERROR(time_step(rows));
    // Rows that cost as much as steps of their own never pay, and more of them take long to time.
    if (rows >= kFewRows && times.back().secs > kNoGain * rows * warm) break;
  }
  if (plain_steps > 0 && !stopped()) {
    LS_RETURN_IF_ERROR(time_step(1));
    times.pop_back();  // behind a wide step the caches are cold
    for (int i = 0; i < plain_steps && !stopped(); ++i) LS_RETURN_IF_ERROR(time_step(1));
  }
  if (drafts_->head >= 0 && !stopped()) LS_RETURN_IF_ERROR(TimeDraft(place, drafts_->head, Drafter::kEagle3));
  if (drafts_->model >= 0 && !stopped()) LS_RETURN_IF_ERROR(TimeDraft(place, drafts_->model, Drafter::kDraft));
  if (stopped()) return OkStatus();
  prepared_ = std::move(times);
  for (size_t i = 0; i < governors_.size(); ++i) {
    if (governors_[i]) Tell(governors_[i].get(), static_cast<Drafter>(i));
  }
  return OkStatus();
}

// The time counts, not what is proposed: any text will do. The first proposal opens a window and finds buffers and weights
// cold; the later ones are what a round has.
Status Speculation::TimeDraft(const Place& place, int draft, Drafter drafter) {
  std::vector<int32_t> text(place.tokens.begin(), place.tokens.end());
  text.resize(static_cast<size_t>(spec::kDraftWindow + kDraftTimes * kTokensARound), 0);
  spec::ModelProposer proposer(place.runner, draft, place.sequence, &clock_);
  spec::ProposeContext context;
  context.budget = {kDraftNodes, spec::ShapeLimit::kChain};
  step::DraftTree tree;
  std::vector<float> probability;
  double least = 0;
  for (int i = 0; i <= kDraftTimes; ++i) {
    context.tokens = std::span(text).first(static_cast<size_t>(spec::kDraftWindow + i * kTokensARound));
    const double start = clock_.Now();
    proposer.Propose(context, &tree, &probability);
    const double secs = clock_.Now() - start;
    if (i > 0) least = i == 1 ? secs : std::min(least, secs);
  }
  draft_secs_[static_cast<size_t>(drafter)] = least;
  return OkStatus();
}

void Speculation::Tell(spec::Governor* governor, Drafter drafter) const {
  for (const Prepared& p : prepared_) governor->AddPrepared(p.rows, p.secs);
  const std::vector<Drafter> drafters = DraftersOf(drafter, *drafts_);
  for (size_t i = 0; i < drafters.size(); ++i) {
    const double secs = draft_secs_[static_cast<size_t>(drafters[i])];
    if (secs > 0) governor->AddPreparedDraft(static_cast<int>(i), secs);
  }
}

spec::Governor* Speculation::GovernorOf(Drafter drafter) {
  LS_CHECK(drafter != Drafter::kNone);
  std::unique_ptr<spec::Governor>& governor = governors_[static_cast<size_t>(drafter)];
  if (governor) return governor.get();
  spec::GovernorOptions options;
  options.max_slowdown = max_slowdown_;
  options.max_nodes = kMaxSpecNodes;
  governor = std::make_unique<spec::Governor>(&clock_, options);
  for (Drafter d : DraftersOf(drafter, *drafts_)) governor->AddDrafter(DrafterName(d));
  Tell(governor.get(), drafter);
  return governor.get();
}

void ReportLedger(const spec::Governor& governor, const spec::Ledger& before, DecodeStats* stats) {
  const spec::Ledger& now = governor.ledger();
  stats->governed = true;
  stats->ledger_secs = now.saved_secs() - before.saved_secs();
  stats->machine_secs = now.machine_secs() - before.machine_secs();
  stats->ledger_balance_secs = now.balance_secs();
  stats->last_decision = spec::ReasonName(governor.last_reason());
}

}  // namespace lockstep::engine
