// Where a step's time goes: each interval between consecutive stamps has one owner (promise P7).
//
// Units:   ticks inside (trace/ticks.h), microseconds a step in the summary
// Threads: one Stopwatch a member, written by its thread; read by others only while that thread waits
// Capture: Run: no allocation, no system call
// Cost:    a stamp is one clock read and two additions
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "trace/ticks.h"

namespace lockstep::trace {

enum class Owner : uint8_t {
  kSchedule,
  kDraft,
  kAttention,
  kMatmul,
  kAllReduceWait,  // skew: the others were not there yet
  kAllReduceMove,  // reading and adding partial sums
  kSample,
  kHostGap,  // between two steps
  kOther,
};
inline constexpr int kNumOwners = 9;
const char* OwnerName(Owner owner);  // "allreduce_wait": the key in every JSON

struct StepBreakdown {
  std::array<uint64_t, kNumOwners> ticks{};  // by Owner
  uint64_t num_steps = 0;

  void Add(const StepBreakdown& other);
};

struct StepSummary {
  std::array<double, kNumOwners> mean_us{};  // by Owner, a step
  std::array<double, kNumOwners> share{};    // of total_us; all 0 when total_us is
  double total_us = 0;                       // a step
  uint64_t num_steps = 0;

  std::string ToString() const;  // one line an owner
};
// The first call may wait 10 ms for the clock's calibration: not inside a step.
StepSummary Summarize(const StepBreakdown& breakdown);

class Stopwatch {
 public:
  // Begins an interval without an owner for what came before.
  void Start() { last_ = Ticks(); }

  // The interval since the last Start or Stamp goes to `owner`.
  void Stamp(Owner owner) { StampSplit(owner, owner, 0); }

  // The same, but `part_ticks` of it (at most all) go to `part_owner`: the wait inside an all-reduce.
  void StampSplit(Owner owner, Owner part_owner, uint64_t part_ticks) {
    const uint64_t now = Ticks();
    // A thread that moved between sockets may see its counter step back a little; time does not.
    const uint64_t interval = now > last_ ? now - last_ : 0;
    const uint64_t part = part_ticks < interval ? part_ticks : interval;
    breakdown_.ticks[static_cast<int>(part_owner)] += part;
    breakdown_.ticks[static_cast<int>(owner)] += interval - part;
    last_ = now;
  }

  void EndStep() { ++breakdown_.num_steps; }
  void Reset() { breakdown_ = {}; }
  const StepBreakdown& breakdown() const { return breakdown_; }

 private:
  uint64_t last_ = Ticks();
  StepBreakdown breakdown_;
};

}  // namespace lockstep::trace
