// Whether a draft head is one for this model: how often it names the model's own next token on a short text, with the
// model's features and the text's tokens given (teacher forcing).
//
// A head for another model of the same sizes loads, runs, and is hardly ever right: the published case drafted for
// Kimi-K2.5 with a head for Kimi-K2 and lost a third of its speed.
//
// Units:   a share of the text's positions, 0 to 1
// Errors:  as a step's
// Threads: one caller; no other step may be in flight
// Capture: Prepare: nothing may be in the cache
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"

namespace lockstep::step {
class StepRunner;
}

namespace lockstep::engine {

// So few places say nothing.
inline constexpr int kLeastProbes = 32;
// Below this share a head is refused; below the second it is warned of.
inline constexpr double kLeastAgreement = 0.10;
inline constexpr double kLowAgreement = 0.30;

// What the probe reads. Plain English, as an assistant writes it.
extern const char kProbeText[];

// tokens: at least 3; what lies beyond a step's rows is left out. The sequence has pages for them.
Result<double> ProbeHead(step::StepRunner& runner, int draft, int sequence, std::span<const int32_t> tokens);

}  // namespace lockstep::engine
