// Where ranks and their threads run: a CPU for each, so that a rank stays on one NUMA node and ranks of a node are
// neighbours in the canonical tree.
//
// Errors:  none: what does not fit is placed anyway, flagged and explained
// Threads: a value
// Capture: Prepare
// Order:   never changes a result, only its time: the order of addition is over logical ranks
#pragma once

#include <string>
#include <vector>

#include "topology/machine.h"

namespace lockstep::topology {

struct Placement {
  std::vector<std::vector<int>> cpus;     // [rank][thread], os_index; to be pinned only if not oversubscribed
  std::vector<int> numa_nodes;            // [rank], index into Machine::numa_nodes, of the rank's thread 0
  std::vector<std::vector<int>> islands;  // consecutive ranks that share a NUMA node
  bool oversubscribed = false;            // more threads than CPUs that may run at once: do not pin, do not spin
  std::string warning;                    // for a person; empty if all is well
};

// One thread a core before a second one on any core. Ranks spread evenly over the NUMA nodes that have allowed CPUs,
// for memory bandwidth is what decoding is short of; if a node would be too small, they fill the machine in order.
// world_size, threads_per_rank >= 1.
Placement PlaceRanks(const Machine& machine, int world_size, int threads_per_rank);

}  // namespace lockstep::topology
