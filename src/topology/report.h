// What this machine has, what Lockstep will use of it, and what is missing: `lockstep doctor`.
//
// Units:   bytes
// Errors:  a bad LOCKSTEP_CPU_ISA is reported as missing, not returned
// Threads: any
// Capture: Prepare
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/cpu/features.h"
#include "topology/machine.h"

namespace lockstep::topology {

struct MachineReport {
  Machine machine;
  device::cpu::CpuFeatures features;
  device::cpu::CpuIsa isa = device::cpu::CpuIsa::kGeneric;  // that will be used
  bool isa_forced = false;                                  // by LOCKSTEP_CPU_ISA
  std::string transparent_huge_pages;                       // "always", "madvise", "never"; empty: not offered
  uint64_t memory_bytes = 0;                                // of the machine, or of the control group if that is less
  uint64_t memory_available_bytes = 0;
  uint64_t shm_bytes = 0;  // size of /dev/shm, 0: none
  bool has_nvidia_gpu = false;
  std::vector<std::string> missing;  // one sentence each

  std::string ToText() const;
  std::string ToJson() const;  // an object
};

Result<MachineReport> MakeReport();

}  // namespace lockstep::topology
