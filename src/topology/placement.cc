#include "topology/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"

namespace lockstep::topology {
namespace {

// Allowed CPUs: first hardware threads by node and core, then the second ones alike. smt_index is counted again among
// the allowed, for the mask may leave only a core's second thread.
std::vector<Cpu> InOrder(const Machine& machine) {
  std::vector<Cpu> cpus;
  std::map<int, int> allowed_of_core;
  for (Cpu c : machine.cpus) {
    if (!c.allowed) continue;
    c.smt_index = allowed_of_core[c.core]++;
    cpus.push_back(c);
  }
  std::stable_sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) {
    if (a.smt_index != b.smt_index) return a.smt_index < b.smt_index;
    return a.numa_node < b.numa_node;
  });
  return cpus;
}

}  // namespace

Placement PlaceRanks(const Machine& machine, int world_size, int threads_per_rank) {
  LS_CHECK_GE(world_size, 1);
  LS_CHECK_GE(threads_per_rank, 1);
  const int total = world_size * threads_per_rank;
  const std::vector<Cpu> order = InOrder(machine);
  LS_CHECK(!order.empty());
  std::map<int, std::vector<Cpu>> by_node;  // each in the same order
  for (const Cpu& c : order) by_node[c.numa_node].push_back(c);

  // Consecutive ranks share a node: rank r stands on the (r * nodes / W)-th of them.
  const int num_nodes = static_cast<int>(by_node.size());
  std::vector<int> node_ids;
  for (const auto& entry : by_node) node_ids.push_back(entry.first);
  auto node_of = [&](int rank) { return node_ids[rank * num_nodes / world_size]; };
  std::map<int, int> wanted;
  for (int rank = 0; rank < world_size; ++rank) wanted[node_of(rank)] += threads_per_rank;
  bool spread = true;
  for (const auto& [node, count] : wanted) {
    // Only first hardware threads while there are cores enough in the machine.
    int available = 0;
    for (const Cpu& c : by_node[node]) {
      available += total > machine.num_allowed_cores() || c.smt_index == 0;
    }
    spread = spread && count <= available;
  }

  Placement placement;
  placement.cpus.resize(world_size);
  std::map<int, size_t> used;  // by node
  size_t next = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    for (int thread = 0; thread < threads_per_rank; ++thread) {
      const Cpu& cpu = spread ? by_node[node_of(rank)][used[node_of(rank)]++] : order[next++ % order.size()];
      if (thread == 0) placement.numa_nodes.push_back(cpu.numa_node);
      placement.cpus[rank].push_back(cpu.os_index);
    }
    const bool same = rank > 0 && placement.numa_nodes[rank] == placement.numa_nodes[rank - 1];
    if (!same) placement.islands.emplace_back();
    placement.islands.back().push_back(rank);
  }

  placement.oversubscribed = total > machine.num_usable_cpus();
  if (placement.oversubscribed) {
    placement.warning = fmt::format(
        "{} ranks x {} threads on {} usable CPUs ({} allowed{}): they take turns, expect much "
        "lower speed",
        world_size, threads_per_rank, machine.num_usable_cpus(), machine.num_allowed_cpus(),
        machine.quota_cpus > 0 ? fmt::format(", quota {:.2f}", machine.quota_cpus) : "");
  } else if (total > machine.num_allowed_cores()) {
    placement.warning = fmt::format("{} ranks x {} threads on {} cores: some cores run two threads", world_size,
                                    threads_per_rank, machine.num_allowed_cores());
  }
  return placement;
}

}  // namespace lockstep::topology
