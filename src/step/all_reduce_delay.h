// A time that every all-reduce of a step is made to take longer, by the step's rows: a bench's stand-in for a slow link.
//
// Shapes:  points ascend by rows; linear between two points, constant outside them
// Units:   microseconds; ticks of trace/ticks.h
// Errors:  kInvalidArgument names the flag and the value
// Threads: any
// Capture: Prepare
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::step {

inline constexpr double kMaxAllReduceDelayUs = 100000;  // far below the least timeout of a rank that is of use

struct AllReduceDelay {
  int rows;
  double us;
};

// "US" for all widths, or "ROWS:US,ROWS:US,..." with ascending rows.
Result<std::vector<AllReduceDelay>> ParseAllReduceDelays(const std::string& text);
// [max_rows + 1] by rows of the step; empty without points.
std::vector<uint64_t> AllReduceDelayTicks(const std::vector<AllReduceDelay>& points, int max_rows);

}  // namespace lockstep::step
