#include "spec/ledger.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::spec {

void Ledger::Start(double plain_secs) {
  LS_CHECK(!started_);
  started_ = true;
  balance_ = options_.start_steps * plain_secs;
}

double Ledger::Headroom(double plain_secs) const {
  return started_ ? balance_ + (1 + options_.epsilon) * plain_secs : 0;
}

bool Ledger::Allows(double plain_secs, double worst_secs) const {
  return started_ && Headroom(plain_secs) >= worst_secs;
}

void Ledger::Cap(double plain_secs) {
  balance_ = std::min(balance_, options_.cap_steps * plain_secs);
}

void Ledger::AddPlain(double plain_secs, double draft_secs) {
  saved_ -= draft_secs;
  if (!started_) return;
  balance_ += options_.epsilon * plain_secs - draft_secs;
  Cap(plain_secs);
}

void Ledger::AddRound(const LedgerRound& round) {
  LS_CHECK(started_ && round.num_requests > 0);
  const double steps = static_cast<double>(round.num_tokens) / round.num_requests;
  const double charged = std::min(round.round_secs, options_.machine_worsts * round.worst_secs);
  machine_ += round.round_secs - charged;
  saved_ += round.plain_mean_secs * steps - round.round_secs;
  balance_ += (1 + options_.epsilon) * round.plain_secs * steps - charged;
  Cap(round.plain_secs);
}

}  // namespace lockstep::spec
