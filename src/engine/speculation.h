// The engine's memory for drafting: what steps of each width cost, and a governor with its ledger for each kind of request.
//
// Units:    seconds
// Errors:   Prepare: as a step's
// Threads:  one caller
// Capture:  Prepare is Prepare: it runs steps of its own; nothing may be in the cache
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "engine/drafts.h"
#include "engine/request.h"
#include "spec/clock.h"
#include "spec/governor.h"
#include "spec/suffix_corpus.h"

namespace lockstep::step {
class StepRunner;
}

namespace lockstep::engine {

// Draft rows of a request in a step of automatic shape, at most. A wider step is bound by arithmetic on a CPU, and timing
// it beforehand would take longer than a short answer.
inline constexpr int kMaxSpecNodes = 15;

// Whether governor and ledger decide about its drafts.
inline bool Governed(const Request& request) {
  return request.drafter != Drafter::kNone && request.shape.kind == DraftShape::Kind::kAuto;
}

class Speculation {
 public:
  // drafts: outlives the object.
  Speculation(double max_slowdown, int64_t corpus_bytes, const LoadedDrafts* drafts);

  // Where the steps of Prepare run: behind the tokens of a sequence, which they leave as they are.
  struct Place {
    step::StepRunner* runner;
    int sequence;
    std::span<const int32_t> tokens;  // prompt and output, of which all but the last are in the cache; empty: none is
    int room;                         // rows that may stand behind them
  };
  // Times a step of each width that can pay once, a proposal of each loaded draft once, and `plain_steps` steps of one
  // row. Does nothing the second time. Stops between two steps when interrupted; then it is as if it had not been called.
  Status Prepare(const Place& place, int plain_steps, const std::atomic<bool>& interrupted);
  bool prepared() const { return !prepared_.empty(); }
  // Of this kind of request; made when it is first asked for. Requires: not kNone.
  spec::Governor* GovernorOf(Drafter drafter);
  spec::SuffixCorpus* corpus() { return corpus_.get(); }  // null: none
  const spec::Clock& clock() const { return clock_; }

 private:
  Status TimeDraft(const Place& place, int draft, Drafter drafter);
  void Tell(spec::Governor* governor, Drafter drafter) const;

  struct Prepared {
    int rows;
    double secs;
  };
  double max_slowdown_;
  const LoadedDrafts* drafts_;
  spec::SteadyClock clock_;
  std::vector<Prepared> prepared_;
  std::array<double, kNumDrafters> draft_secs_{};  // of a proposal; 0: not timed
  std::array<std::unique_ptr<spec::Governor>, kNumDrafters> governors_;
  std::unique_ptr<spec::SuffixCorpus> corpus_;
};

// Puts what the ledger says into a response's statistics: what changed since `before`.
void ReportLedger(const spec::Governor& governor, const spec::Ledger& before, DecodeStats* stats);

}  // namespace lockstep::engine
