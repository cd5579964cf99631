// How fast threads read memory together: the limit of a step that reads its weights once.
//
// Units:    bytes; gbps is 10^9 bytes a second
// Requires: bytes >= 1, at least one thread
// Errors:   kOutOfMemory  the memory or a thread is refused
// Threads:  starts one thread for each entry of cpus and ends them; the caller waits
// Capture:  no: measurement only
// Cost:     rounds * bytes / bandwidth, and filling the memory once
// Source:   a plain loop of loads, and the same with a near and a far prefetch; the best round counts, since other programs can
//           only make it slower
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"

namespace lockstep::device::cpu {

struct ReadBandwidthOptions {
  size_t bytes = 0;       // of all threads together; each reads one contiguous part, on huge pages where granted
  std::vector<int> cpus;  // a thread each, pinned there; -1: not pinned
  int rounds = 40;
};

Result<double> MeasureReadGbps(const ReadBandwidthOptions& options);

}  // namespace lockstep::device::cpu
