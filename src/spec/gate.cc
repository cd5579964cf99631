#include "spec/gate.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::spec {
namespace {

// A step that took longer than this many times the estimate was disturbed from outside; it counts as that much only, or
// one hiccup would close the gate for good.
constexpr double kOutlier = 3;

void Update(double* estimate, double sample, bool first) {
  if (first) {
    *estimate = sample;
    return;
  }
  *estimate += kGateAlpha * (std::min(sample, kOutlier * *estimate) - *estimate);
}

}  // namespace

double Gate::round_seconds(int width) const {
  for (int distance = 0; distance <= step::kMaxTreeRows; ++distance) {
    // The wider neighbour first: it is the more careful guess.
    const int above = width + distance, below = width - distance;
    if (above <= step::kMaxTreeRows && round_seconds_[above] > 0) return round_seconds_[above];
    if (below >= 0 && round_seconds_[below] > 0) return round_seconds_[below];
  }
  return 0;
}

bool Gate::Pays(int width) const {
  return tokens_per_round_ * plain_seconds_ > kGateMargin * round_seconds(width);
}

Gate::Decision Gate::Decide(int width) const {
  LS_CHECK(width >= 2 && width <= step::kMaxTreeRows);
  if (num_plain_ < kGateFirstPlain) return {false, Reason::kNoPlainTime};
  if (num_rounds_ < kGateTrialRounds) return {true, Reason::kTrial};
  if (Pays(width)) return {true, Reason::kPays};
  if (plain_since_round_ >= probe_after_) return {true, Reason::kProbe};
  return {false, Reason::kLoses};
}

void Gate::ReportPlain(double seconds) {
  LS_CHECK_GE(seconds, 0.0);
  Update(&plain_seconds_, seconds, num_plain_ <= 1);
  ++num_plain_;
  ++plain_since_round_;
}

void Gate::ReportRound(int width, int num_tokens, double seconds) {
  LS_CHECK(width >= 2 && width <= step::kMaxTreeRows);
  LS_CHECK_GE(num_tokens, 1);
  LS_CHECK_GE(seconds, 0.0);
  const bool probe = plain_since_round_ >= probe_after_ && num_rounds_ >= kGateTrialRounds;
  const double plain_rate_tokens = plain_seconds_ > 0 ? seconds / plain_seconds_ : 0;
  if (probe) {
    // What was true before the pause says little now: a probe that pays reopens the gate at once, and a lost one
    // doubles the wait.
    if (num_tokens > kGateMargin * plain_rate_tokens) {
      tokens_per_round_ = num_tokens;
      probe_after_ = kGateFirstProbe;
    } else {
      probe_after_ = std::min(2 * probe_after_, kGateLastProbe);
    }
  }
  Update(&tokens_per_round_, num_tokens, num_rounds_ == 0);
  Update(&round_seconds_[width], seconds, round_seconds_[width] == 0);
  ++num_rounds_;
  plain_since_round_ = 0;
}

void Gate::StartRequest() {
  num_rounds_ = 0;
  tokens_per_round_ = 0;
  plain_since_round_ = 0;
  probe_after_ = kGateFirstProbe;
}

const char* Gate::ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kNoPlainTime:
      return "no plain time yet";
    case Reason::kTrial:
      return "trial";
    case Reason::kPays:
      return "pays";
    case Reason::kLoses:
      return "loses";
    case Reason::kProbe:
      return "probe";
  }
  return "unknown";
}

}  // namespace lockstep::spec
