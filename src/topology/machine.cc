#include "topology/machine.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "device/cpu/affinity.h"
#include "device/cpu/features.h"
#include "topology/cgroup.h"

namespace lockstep::topology {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology* t) const { hwloc_topology_destroy(t); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

int CutByQuota(int count, double quota_cpus) {
  if (quota_cpus > 0) count = std::min(count, static_cast<int>(quota_cpus));
  return std::max(count, 1);
}

void ReadCaches(hwloc_topology_t t, Machine* machine) {
  std::map<std::tuple<int, uint64_t, int>, int> kinds;
  for (hwloc_obj_type_t type : {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE}) {
    for (hwloc_obj_t o = hwloc_get_next_obj_by_type(t, type, nullptr); o != nullptr;
         o = hwloc_get_next_obj_by_type(t, type, o)) {
      ++kinds[{static_cast<int>(o->attr->cache.depth), o->attr->cache.size, hwloc_bitmap_weight(o->cpuset)}];
    }
  }
  for (const auto& [kind, count] : kinds) {
    machine->caches.push_back({std::get<0>(kind), std::get<1>(kind), std::get<2>(kind), count});
  }
}

std::string CpuModel(hwloc_topology_t t) {
  if (!device::cpu::Features().model_name.empty()) return device::cpu::Features().model_name;
  hwloc_obj_t package = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_PACKAGE, nullptr);
  const char* name = hwloc_obj_get_info_by_name(package ? package : hwloc_get_root_obj(t), "CPUModel");
  return name != nullptr ? name : "unknown CPU";
}

}  // namespace

Result<Machine> DiscoverMachine() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Internal("hwloc: cannot make a topology");
  Topology owner(raw);
  if (hwloc_topology_load(raw) != 0) return Internal("hwloc: cannot read this machine");
  LS_ASSIGN_OR_RETURN(std::vector<int> allowed, device::cpu::AllowedCpus());
  const std::set<int> allowed_set(allowed.begin(), allowed.end());

  Machine machine;
  machine.cpu_model = CpuModel(raw);
  machine.quota_cpus = ReadCgroupLimits().cpus;
  machine.num_packages = std::max(1, hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_PACKAGE));
  ReadCaches(raw, &machine);

  std::vector<hwloc_obj_t> nodes;
  for (hwloc_obj_t n = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_NUMANODE, nullptr); n != nullptr;
       n = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_NUMANODE, n)) {
    nodes.push_back(n);
    machine.numa_nodes.push_back({static_cast<int>(n->os_index), n->attr->numanode.local_memory});
  }
  if (machine.numa_nodes.empty()) machine.numa_nodes.push_back({});

  std::map<int, int> cpus_of_core;
  for (hwloc_obj_t pu = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PU, nullptr); pu != nullptr;
       pu = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PU, pu)) {
    Cpu cpu;
    cpu.os_index = static_cast<int>(pu->os_index);
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(raw, HWLOC_OBJ_CORE, pu);
    hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(raw, HWLOC_OBJ_PACKAGE, pu);
    cpu.core = core ? static_cast<int>(core->logical_index) : static_cast<int>(pu->logical_index);
    cpu.package = package ? static_cast<int>(package->logical_index) : 0;
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (hwloc_bitmap_isset(nodes[n]->cpuset, pu->os_index)) {
        cpu.numa_node = static_cast<int>(n);
        break;  // memory-only tiers of the same CPUs come later in the list
      }
    }
    cpu.smt_index = cpus_of_core[cpu.core]++;
    cpu.allowed = allowed_set.count(cpu.os_index) > 0;
    machine.cpus.push_back(cpu);
  }
  if (machine.num_allowed_cpus() == 0) return Internal("hwloc and the affinity mask have no CPU in common");
  return machine;
}

int Machine::num_allowed_cpus() const {
  return static_cast<int>(std::count_if(cpus.begin(), cpus.end(), [](const Cpu& c) { return c.allowed; }));
}

int Machine::num_allowed_cores() const {
  std::set<int> cores;
  for (const Cpu& c : cpus) {
    if (c.allowed) cores.insert(c.core);
  }
  return static_cast<int>(cores.size());
}

int Machine::num_usable_cpus() const {
  return CutByQuota(num_allowed_cpus(), quota_cpus);
}
int Machine::num_usable_cores() const {
  return CutByQuota(num_allowed_cores(), quota_cpus);
}

bool Machine::has_smt() const {
  return std::any_of(cpus.begin(), cpus.end(), [](const Cpu& c) { return c.smt_index > 0; });
}

std::string Machine::Fingerprint() const {
  // Affinity and quota are left out: they belong to the process, not to the machine.
  std::string text = fmt::format("{}|{}|{}", cpu_model, num_packages, numa_nodes.size());
  for (const Cpu& c : cpus) text += fmt::format("|{}.{}.{}", c.core, c.package, c.numa_node);
  for (const Cache& c : caches) text += fmt::format("|L{}:{}x{}", c.level, c.bytes, c.count);
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ull;
  return fmt::format("cpu-{:016x}", hash);
}

}  // namespace lockstep::topology
