// What the process's control group lets it use: CPU time and memory.
//
// Units:   CPUs (2.5 = two and a half); bytes
// Errors:  none: what cannot be read does not limit
// Threads: any
// Source:  control-group v2: cpu.max, memory.max;
//          v1: cpu.cfs_quota_us, cpu.cfs_period_us, memory.limit_in_bytes
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::topology {

struct CgroupLimits {
  double cpus = 0;            // 0: no limit
  uint64_t memory_bytes = 0;  // 0: no limit
};

// Every group from the process's own up to the root counts: the tightest limit holds. `root` stands before /proc and
// /sys; tests give a folder.
CgroupLimits ReadCgroupLimits(const std::string& root = "");

}  // namespace lockstep::topology
