#include "engine/speculation.h"

#include "base/check.h"
#include "engine/drafting.h"
#include "step/step_runner.h"

namespace lockstep::engine {
namespace {

constexpr int kWidths[] = {2, 3, 4, 5, 6, 7, 8, 12, kMaxSpecNodes + 1};
constexpr int kPlainSteps = 8;
constexpr int kWarmUpSteps = 2;
// From so many rows on, wider steps are not timed once rows cost this share of a plain step each.
constexpr int kFewRows = 4;
constexpr double kNoGain = 0.9;

}  // namespace

Speculation::Speculation(double max_slowdown, int64_t corpus_bytes, const LoadedDrafts* drafts)
    : max_slowdown_(max_slowdown), drafts_(drafts) {
  if (corpus_bytes > 0) corpus_ = std::make_unique<spec::SuffixCorpus>(corpus_bytes);
}

Status Speculation::Prepare(step::StepRunner& runner, int sequence, const std::atomic<bool>& interrupted) {
  if (!prepared_.empty()) return OkStatus();
  std::vector<Prepared> times;
  auto time_step = [&](int rows) -> Status {
    step::DraftTree tree;
    tree.Reset(0);
    for (int i = 1; i < rows; ++i) tree.Add(i - 1, i % runner.options().num_tokens);
    const double start = clock_.Now();
    step::StepInput& in = runner.input();
    step::AddTree(in, sequence, tree, 0, runner.pages_per_sequence());
    in.sequences[0].sampling = {};
    LS_RETURN_IF_ERROR(runner.Run());
    times.push_back({rows, clock_.Now() - start});
    return OkStatus();
  };
  auto stopped = [&interrupted] { return interrupted.load(std::memory_order_relaxed); };
  for (int i = 0; i < kWarmUpSteps && !stopped(); ++i) LS_RETURN_IF_ERROR(time_step(1));
  const double warm = times.empty() ? 0 : times.back().secs;
  times.clear();
  for (int rows : kWidths) {
    if (rows > runner.options().context || stopped()) break;
    LS_RETURN_IF_ERROR(time_step(rows));
    // Rows that cost as much as steps of their own never pay, and more of them take long to time.
    if (rows >= kFewRows && times.back().secs > kNoGain * rows * warm) break;
  }
  if (!stopped()) LS_RETURN_IF_ERROR(time_step(1));
  if (!times.empty()) times.pop_back();  // behind a wide step the caches are cold
  for (int i = 0; i < kPlainSteps && !stopped(); ++i) LS_RETURN_IF_ERROR(time_step(1));
  if (stopped()) return OkStatus();
  prepared_ = std::move(times);
  governors_ = {};  // those made before knew no times
  return OkStatus();
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
  for (const Prepared& p : prepared_) governor->AddPrepared(p.rows, p.secs);
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
