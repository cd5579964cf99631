// The governor: which drafter runs in a round, and which of its rows are verified; none included.
//
// Each round it takes the rows that give the most expected tokens per second. It knows what steps of each width cost (as
// measured), how far each drafter's probabilities can be believed (as measured), and what the ledger has: a round with
// draft rows starts only if the ledger allows the worst of its shape. No decision is final: a drafter that lost is tried
// again after a number of plain steps that doubles up to a bound. Plain steps are measured in pairs, of which the second
// counts, since the first finds the caches cold.
//
// It asks its clock only for how long things took; ranks never call it, the leader hands them the rows it chose.
//
//   BeginRound;  for each request: while ((d = NextDrafter(i)) >= 0) run drafter d and Offer what it proposed;
//   Decide;  run the step and commit;  EndRound
//
// Shapes:   requests of a round [n]; a tree and its probabilities [num_rows] each
// Units:    seconds; tokens; rows of a step, roots included
// Requires: calls in that order; AddPrepared and drafters before the first round
// Threads:  one caller an object; one object an engine (and mode of a bench)
// Cost:     O(rows x log rows) a round
// Source:   best-first trees (EAGLE-2) against measured cost; utility as tokens per second (Cascade, arXiv 2506.20675)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spec/acceptance.h"
#include "spec/clock.h"
#include "spec/cost_table.h"
#include "spec/ledger.h"
#include "spec/plain_time.h"
#include "step/accept_walk.h"

namespace lockstep::spec {

// Draft rounds between two pairs of plain steps that measure what plain decoding costs. The pair gives up the gain of two
// tokens: 64 rounds keep that below 1 % for a drafter that gains a half; one that gains less gives up less, and needs a
// better measurement, so its rounds are fewer in proportion.
inline constexpr int kMostRoundsPerProbe = 64;
inline constexpr int kLeastRoundsPerProbe = 4;
inline constexpr double kRoundsPerProbeAndGain = 150;
// Plain steps before a drafter that lost is tried again, then twice as many each time up to the last, and more where a
// try loses more than this share of the plain steps since the last one. The ledger bounds what tries cost; this keeps it
// far below.
inline constexpr int kFirstRetry = 16;
inline constexpr int kLastRetry = 512;
inline constexpr double kRetryShare = 0.001;
inline constexpr int kLongestWait = 8192;
// A drafter whose proposals cost less than this share of a plain step is run whenever the ledger allows a row: most of
// its misses together stay within the loss that is allowed.
inline constexpr double kFreeShare = 0.001;
// Rounds that a decision against all drafters holds without being looked at again, and plain steps of which one is
// measured once there are enough: the governor's own memory is cold after each step, and it must cost next to nothing.
inline constexpr int kRestRounds = 15;
inline constexpr int kPlainSampleEvery = 8;
// Rows must promise this much more than none, or noise in two near estimates would decide.
inline constexpr double kMargin = 1.005;
// Rows of all requests together that are considered beyond the roots, where measured costs set no earlier end.
inline constexpr int kMaxGovernedRows = 256;

struct GovernorOptions {
  LedgerOptions ledger;
  // No request's tokens come slower than this share beyond plain because of its neighbours' rows (--spec-max-slowdown).
  double max_slowdown = 0.25;
  // Widest draft of one request.
  int max_nodes = 31;
  // False: what drafters claim is believed for ever, so that only the ledger stops them. For tests of the ledger.
  bool learns = true;
};

enum class Reason : uint8_t {
  kNoPlainTime,  // plain: nothing to compare with yet at this number of requests
  kPlainProbe,   // plain: to measure it
  kLedger,       // plain: the ledger does not cover the worst of the cheapest shape
  kOff,          // plain: every drafter lost, the next try is not due
  kNoProposal,   // plain: the drafters had nothing to say
  kLoses,        // plain: no row is worth its cost
  kPays,         // draft
  kRetry,        // draft: a drafter that lost is tried again
};
const char* ReasonName(Reason reason);

// A request that decodes in the round.
struct RoundRequest {
  int64_t id = 0;       // unique while it lives; StartRequest was called with it
  int64_t context = 0;  // tokens committed
  int max_nodes = 0;    // that context, pages and the token limit leave
};

// What the governor chose for a request.
struct RequestDecision {
  int drafter = -1;           // -1: no row
  std::vector<int32_t> rows;  // of the offered tree, ascending, the root not included; parents are in it
};

// What became of it.
struct RequestOutcome {
  int64_t num_tokens = 0;                  // emitted, at least 1
  std::span<const int32_t> accepted_rows;  // of the offered tree, on the path behind the root
};

struct GovernorCounters {
  int64_t plain_steps = 0;
  int64_t rounds = 0;  // with draft rows
  int64_t draft_rows = 0;
  int64_t accepted_rows = 0;
  int64_t accepted_at[kMaxReportedDepth + 1] = {};  // [depth]; deeper ones in the last
};

class Governor {
 public:
  explicit Governor(const Clock* clock, const GovernorOptions& options = {});

  // Prepare: the time of a step of `rows` of one request. rows = 1 several times, which also starts the plain estimate.
  void AddPrepared(int rows, double secs);
  // What a proposal of a drafter that runs a model took.
  void AddPreparedDraft(int drafter, double secs) { costs_.AddDraft(drafter, secs); }
  // A drafter to choose from; returns its number. Cheaper ones first.
  int AddDrafter(std::string name);

  void StartRequest(int64_t id);
  void EndRequest(int64_t id);

  void BeginRound(std::span<const RoundRequest> requests);
  // The drafter to run now for request i, or -1. The clock runs on its account until Offer.
  int NextDrafter(int i);
  // probability: of each row to be reached, 1 for the root. At most budget(i) nodes. opened: the proposal did what a
  // request needs once; the ledger is charged, but the next proposal is not expected to take as long.
  void Offer(int i, int drafter, const step::DraftTree& tree, std::span<const float> probability, bool opened = false);
  int budget(int i) const;
  // A node less likely than this, by a drafter's own account, costs more than it brings; drafters stop there.
  float min_reach() const { return min_reach_; }
  // Tokens that a second has brought lately, drafts included.
  double tokens_per_second() const;
  std::span<const RequestDecision> Decide();
  void EndRound(std::span<const RequestOutcome> outcomes);

  Reason last_reason() const { return reason_; }
  double last_worst_secs() const { return worst_secs_; }  // of the last round's shape; 0 if it was plain
  double last_draft_secs() const { return draft_secs_; }
  const Ledger& ledger() const { return ledger_; }
  const CostTable& costs() const { return costs_; }
  const PlainTime& plain() const { return plain_; }
  const GovernorCounters& counters() const { return counters_; }
  int num_drafters() const { return static_cast<int>(drafters_.size()); }
  const std::string& drafter_name(int drafter) const { return drafters_[static_cast<size_t>(drafter)].name; }
  const Acceptance& acceptance(int drafter) const { return drafters_[static_cast<size_t>(drafter)].acceptance; }
  // Of one request alone, going by acceptance by depth: the best number of draft nodes and the tokens per second that it
  // promises; 0 nodes: plain. Requires: plain().Known(1).
  struct Outlook {
    int nodes = 0;
    double tokens_per_second = 0;
  };
  Outlook Expect(int drafter, int num_requests, double context) const;

 private:
  struct DrafterState {
    std::string name;
    Acceptance acceptance;
    int64_t plain_since = 0;  // plain steps since it had rows
    int retry_after = kFirstRetry;
    bool loses = false;  // by the last look
    bool ran = false;    // in this round
  };
  struct RequestState {
    int64_t id;
    std::vector<RequestAcceptance> ratios;  // by drafter
  };
  struct Proposal {
    int drafter = -1;
    step::DraftTree tree;
    std::vector<float> claimed;  // [num_rows] to be accepted if the parent is, by the drafter
    std::vector<float> reach;    // [num_rows] as far as the governor believes it
    double score = 0;            // tokens per second with its best rows
  };
  struct Candidate {
    double reach;
    int request;
    int32_t row;
  };

  RequestState& StateOf(int64_t id);
  // Whether a round of round_secs may be tried with a drafter that lost.
  bool RetryDue(const DrafterState& drafter, double round_secs) const;
  int RoundsPerProbe() const;
  // Whether not even the surest claims of this drafter would pay for a row.
  bool Hopeless(int drafter, const RequestState& state, double draft_secs) const;
  void FindMinReach();
  void Rest();
  void Believe(const RequestState& state, Proposal* proposal) const;
  double ScoreOf(const Proposal& proposal) const;
  bool TooSlowForSomebody(double secs, std::span<const double> expected) const;
  void Learn(int i, const RequestOutcome& outcome);

  const Clock* clock_;
  GovernorOptions options_;
  PlainTime plain_;
  CostTable costs_;
  Ledger ledger_;
  std::vector<DrafterState> drafters_;
  std::vector<RequestState> requests_;
  GovernorCounters counters_;
  Reason reason_ = Reason::kNoPlainTime;

  // Of the round.
  std::vector<RoundRequest> round_;
  std::vector<int> next_drafter_;  // by request
  std::vector<Proposal> best_;     // by request
  std::vector<RequestDecision> decisions_;
  std::vector<Candidate> candidates_;
  Proposal offered_;
  double start_ = 0, draft_start_ = 0, draft_secs_ = 0;
  double context_ = 0;  // of all requests
  double plain_secs_ = 0, plain_mean_secs_ = 0, worst_secs_ = 0;
  int rows_ = 0;
  bool any_run_ = false;

  float min_reach_ = 0;
  int64_t min_reach_at_ = -1;  // rounds that were behind when it was found
  int rest_rounds_ = 0;        // still to come without a look
  int rest_of_ = 0;            // requests in them
  bool resting_ = false;       // this round is one of them
  int plain_in_row_ = 0;
  int forced_plain_ = 0;                    // plain steps still to take as a probe
  double credit_secs_ = 0, cost_secs_ = 0;  // of the last draft rounds, fading: what they saved and took
  int rounds_since_probe_ = 0;              // draft rounds since plain steps were measured
  int last_plain_of_ = 0;                   // requests in the step before, if it was plain; else 0
};

}  // namespace lockstep::spec
