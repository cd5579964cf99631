// What this machine is made of and how much of it the process may use: CPUs, cores, NUMA nodes, caches.
//
// Units:   bytes; CPUs are hardware threads, numbered as the system does
// Errors:  kInternal  discovery failed
// Threads: a value
// Capture: Prepare
// Cost:    about 10 ms
// Source:  hwloc; the affinity mask; the control group's quota (topology/cgroup.h)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::topology {

struct Cpu {
  int os_index = 0;
  int core = 0;         // index over the machine
  int package = 0;      // index
  int numa_node = 0;    // index into Machine::numa_nodes
  int smt_index = 0;    // 0: the core's first hardware thread
  bool allowed = true;  // by the affinity mask
};

struct NumaNode {
  int os_index = 0;
  uint64_t memory_bytes = 0;
};

struct Cache {
  int level = 0;
  uint64_t bytes = 0;
  int num_cpus = 0;  // that share one
  int count = 0;     // of this kind
};

struct Machine {
  std::string cpu_model;
  std::vector<Cpu> cpus;  // in hwloc's order: neighbours in the list are neighbours in the machine
  std::vector<NumaNode> numa_nodes;
  int num_packages = 1;
  std::vector<Cache> caches;  // data and unified, by level
  double quota_cpus = 0;      // 0: no quota

  int num_allowed_cpus() const;
  int num_allowed_cores() const;  // with at least one allowed CPU
  // What may run at the same time: allowed CPUs, cut by the quota (rounded down, at least 1).
  int num_usable_cpus() const;
  // The default for ranks x threads: one thread a core, for the second one of a core adds no memory bandwidth.
  int num_usable_cores() const;
  bool has_smt() const;

  // Equal for machines of the same build, e.g. "cpu-9f2c41d07a35b6e8": the key of measured tables.
  std::string Fingerprint() const;
};

Result<Machine> DiscoverMachine();

}  // namespace lockstep::topology
