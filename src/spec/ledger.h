// The ledger: seconds that drafting may lose. It makes "never slower than plain" true whatever the drafter does.
//
// A token bucket. Each token brings epsilon of a plain step; a round with draft rows brings what its tokens would have
// cost without drafts and takes what it cost. A round with draft rows starts only if the balance covers the worst that
// its shape may cost, so the balance falls below zero by one overrun at most, and
//
//   time <= (1 + epsilon) x plain + start + one overrun,  and no stretch loses more than epsilon x plain + cap + one
//   overrun.
//
// Time far beyond the worst is the machine's (a descheduled thread) and is counted apart.
//
// Units:   seconds; a step is a plain step of the requests that decode
// Threads: one caller an object; one object an engine (and mode of a bench)
// Cost:    O(1)
#pragma once

#include <cstdint>

namespace lockstep::spec {

struct LedgerOptions {
  double epsilon = 0.005;     // the loss that is allowed, as a share of plain decoding
  double start_steps = 4;     // first balance
  double cap_steps = 32;      // most that a good time can leave for a bad one
  double machine_worsts = 3;  // time beyond so many worsts is the machine's
};

// What a round with draft rows did.
struct LedgerRound {
  double plain_secs = 0;       // a plain step of the same requests: a lower bound, which credits no luck
  double plain_mean_secs = 0;  // the same, as likely too high as too low: for `saved`
  int num_requests = 1;
  int64_t num_tokens = 0;  // emitted by all of them
  double round_secs = 0;   // proposals, catch-up and commit included
  double worst_secs = 0;   // what Allows was asked with
};

class Ledger {
 public:
  explicit Ledger(const LedgerOptions& options = {}) : options_(options) {}

  // Once, as soon as a plain step's time is known. Until then nothing is allowed.
  void Start(double plain_secs);
  bool started() const { return started_; }

  // Whether a round that costs at most worst_secs may start beside plain steps of plain_secs.
  bool Allows(double plain_secs, double worst_secs) const;
  // The least worst_secs that is refused now; for explanations.
  double Headroom(double plain_secs) const;

  // A step without draft rows, whatever it took. draft_secs: spent on drafters that then had no row in it.
  void AddPlain(double plain_secs, double draft_secs);
  void AddRound(const LedgerRound& round);

  double epsilon() const { return options_.epsilon; }
  double balance_secs() const { return balance_; }
  // What drafting gained so far against plain decoding, its lost proposals and the machine's time included.
  double saved_secs() const { return saved_; }
  // In rounds, beyond what is charged.
  double machine_secs() const { return machine_; }

 private:
  void Cap(double plain_secs);

  LedgerOptions options_;
  bool started_ = false;
  double balance_ = 0;
  double saved_ = 0;
  double machine_ = 0;
};

}  // namespace lockstep::spec
