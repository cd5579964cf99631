// The gate: draft in this round, or take a plain step? The simple rule of this stage.
//
// It keeps moving estimates of the tokens a round emits and of the seconds that rounds and plain steps take, and drafts
// while expected tokens per second with drafts beat plain ones by a margin. While closed it lets one probe round
// through after a number of plain steps that doubles with each failed probe, so that a drafter that became good is
// found again and one that stays bad costs less and less.
//
// It has no clock: what it decides is a function of what it was told, in order. Ranks that are told the same (one
// rank's times, handed to all) decide the same.
//
// Units:   seconds; tokens; width = rows of the request in the step, the root's included
// Threads: one caller an object; one object a request and drafter
// Cost:    O(1)
#pragma once

#include <cstdint>

#include "step/accept_walk.h"

namespace lockstep::spec {

// Weight of a new sample: an estimate remembers about 8, a few sentences of a changing text.
inline constexpr double kGateAlpha = 1.0 / 8;
// Plain steps before the first draft, so that there is something to compare with. The first is not counted: it is cold.
inline constexpr int kGateFirstPlain = 2;
// Rounds let through before the gate may close: one round's acceptance says little (it is 0 or all on a copy).
inline constexpr int kGateTrialRounds = 4;
// Drafting must promise this much more than plain, or noise in two near estimates would flip the gate.
inline constexpr double kGateMargin = 1.02;
// Plain steps before the first probe, then twice as many each time up to the last. A probe costs at most a few plain
// steps, so probing costs a few percent at first and less than half a percent for a drafter that stays bad.
inline constexpr int kGateFirstProbe = 32;
inline constexpr int kGateLastProbe = 1024;

class Gate {
 public:
  enum class Reason {
    kNoPlainTime,  // plain: nothing to compare with yet
    kTrial,        // draft: not enough rounds yet
    kPays,         // draft
    kLoses,        // plain
    kProbe,        // draft: to see whether it pays by now
  };
  struct Decision {
    bool draft = false;
    Reason reason = Reason::kNoPlainTime;
  };

  // Whether to draft with `width` rows now. Does not change the gate: asking twice gives the same.
  // Requires: 2 <= width <= step::kMaxTreeRows.
  Decision Decide(int width) const;

  // A step without draft rows took this long. A drafter that had nothing to propose counts here too.
  void ReportPlain(double seconds);
  // A round with width > 1 rows emitted num_tokens >= 1; seconds hold proposing, verifying and committing.
  void ReportRound(int width, int num_tokens, double seconds);

  // Forgets the acceptance and the probes, keeps the times: a new request on the same machine.
  void StartRequest();

  double plain_seconds() const { return plain_seconds_; }
  double tokens_per_round() const { return tokens_per_round_; }
  // The estimate for a round of that width: its own, else that of the nearest width seen, else 0.
  double round_seconds(int width) const;
  static const char* ReasonName(Reason reason);

 private:
  bool Pays(int width) const;

  int64_t num_plain_ = 0;
  int64_t num_rounds_ = 0;  // of this request
  double plain_seconds_ = 0;
  double tokens_per_round_ = 0;
  double round_seconds_[step::kMaxTreeRows + 1] = {};  // by width; 0: not seen
  int plain_since_round_ = 0;
  int probe_after_ = kGateFirstProbe;
};

}  // namespace lockstep::spec
