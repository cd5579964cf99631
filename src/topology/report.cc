#include "topology/report.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "base/env.h"
#include "topology/cgroup.h"

namespace lockstep::topology {
namespace {

constexpr const char* kCudaNote = "CUDA: not built in this version";

std::string HumanBytes(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, units[unit]);
}

// The mode in brackets: "always [madvise] never".
std::string TransparentHugePages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string text;
  std::getline(file, text);
  const size_t open = text.find('['), close = text.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "";
  return text.substr(open + 1, close - open - 1);
}

uint64_t MemInfoBytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key + ":")) continue;
    uint64_t kib = 0;
    std::istringstream(line.substr(key.size() + 1)) >> kib;
    return kib * 1024;
  }
  return 0;
}

}  // namespace

Result<MachineReport> MakeReport() {
  MachineReport r;
  LS_ASSIGN_OR_RETURN(r.machine, DiscoverMachine());
  r.features = device::cpu::Features();
  r.isa_forced = !Env::Get().cpu_isa.empty();
  if (auto isa = device::cpu::ParseIsa(Env::Get().cpu_isa); isa.ok()) {
    r.isa = *isa;
  } else {
    r.isa = device::cpu::BestIsa(r.features);
    r.isa_forced = false;
    r.missing.push_back("LOCKSTEP_CPU_ISA: " + isa.status().message());
  }
  r.transparent_huge_pages = TransparentHugePages();
  r.memory_bytes = MemInfoBytes("MemTotal");
  r.memory_available_bytes = MemInfoBytes("MemAvailable");
  if (const uint64_t limit = ReadCgroupLimits().memory_bytes; limit > 0) {
    r.memory_bytes = std::min(r.memory_bytes, limit);
    r.memory_available_bytes = std::min(r.memory_available_bytes, limit);
  }
  struct statvfs shm;
  if (statvfs("/dev/shm", &shm) == 0) r.shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
  std::error_code ignored;
  r.has_nvidia_gpu = std::filesystem::exists("/dev/nvidia0", ignored);

  if (r.isa == device::cpu::CpuIsa::kGeneric && !r.isa_forced) {
    r.missing.push_back("AVX2 with FMA and F16C: kernels run as plain C++, several times slower");
  }
  if (r.transparent_huge_pages.empty() || r.transparent_huge_pages == "never") {
    r.missing.push_back("transparent huge pages: weights lie on small pages, a few percent slower");
  }
  if (r.machine.quota_cpus > 0 && r.machine.quota_cpus < r.machine.num_allowed_cpus()) {
    r.missing.push_back(fmt::format("CPU time: the control group allows {:.2f} of {} CPUs", r.machine.quota_cpus,
                                    r.machine.num_allowed_cpus()));
  }
  if (r.has_nvidia_gpu) r.missing.push_back(fmt::format("{}: the NVIDIA GPU is not used", kCudaNote));
  return r;
}

std::string MachineReport::ToText() const {
  std::string text;
  auto line = [&](const char* name, const std::string& value) { text += fmt::format("{:<14} {}\n", name, value); };
  const Machine& m = machine;
  line("CPU", m.cpu_model);
  line("cores", fmt::format("{} CPUs on {} cores allowed, {} CPUs in the machine, {} package{}{}", m.num_allowed_cpus(),
                            m.num_allowed_cores(), m.cpus.size(), m.num_packages, m.num_packages == 1 ? "" : "s",
                            m.quota_cpus > 0 ? fmt::format(", quota {:.2f} CPUs", m.quota_cpus) : ""));
  for (size_t n = 0; n < m.numa_nodes.size(); ++n) {
    line(n == 0 ? "NUMA nodes" : "",
         fmt::format("node {}: {}", m.numa_nodes[n].os_index, HumanBytes(m.numa_nodes[n].memory_bytes)));
  }
  for (size_t c = 0; c < m.caches.size(); ++c) {
    const Cache& cache = m.caches[c];
    line(c == 0 ? "caches" : "", fmt::format("L{} {} x {}, shared by {} CPU{}", cache.level, HumanBytes(cache.bytes),
                                             cache.count, cache.num_cpus, cache.num_cpus == 1 ? "" : "s"));
  }
  line("instructions", features.ToString().empty() ? "generic only" : features.ToString());
  line("memory", fmt::format("{}, {} available", HumanBytes(memory_bytes), HumanBytes(memory_available_bytes)));
  line("huge pages", transparent_huge_pages.empty() ? "not offered" : transparent_huge_pages);
  line("/dev/shm", shm_bytes == 0 ? "none" : HumanBytes(shm_bytes));
  line("GPU", fmt::format("{}; {}", has_nvidia_gpu ? "NVIDIA" : "none found", kCudaNote));
  line("fingerprint", m.Fingerprint());
  line("will use", fmt::format("{} thread{}, {} kernels{}", m.num_usable_cores(), m.num_usable_cores() == 1 ? "" : "s",
                               device::cpu::CpuIsaName(isa), isa_forced ? " (LOCKSTEP_CPU_ISA)" : ""));
  if (missing.empty()) line("missing", "nothing");
  for (size_t i = 0; i < missing.size(); ++i) line(i == 0 ? "missing" : "", missing[i]);
  return text;
}

std::string MachineReport::ToJson() const {
  nlohmann::ordered_json nodes = nlohmann::json::array(), caches = nlohmann::json::array();
  for (const NumaNode& n : machine.numa_nodes)
    nodes.push_back({{"node", n.os_index}, {"memory_bytes", n.memory_bytes}});
  for (const Cache& c : machine.caches) {
    caches.push_back({{"level", c.level}, {"bytes", c.bytes}, {"cpus", c.num_cpus}, {"count", c.count}});
  }
  nlohmann::ordered_json json = {
      {"fingerprint", machine.Fingerprint()},
      {"cpu", machine.cpu_model},
      {"cpus", machine.cpus.size()},
      {"allowed_cpus", machine.num_allowed_cpus()},
      {"allowed_cores", machine.num_allowed_cores()},
      {"quota_cpus", machine.quota_cpus > 0 ? nlohmann::ordered_json(machine.quota_cpus) : nlohmann::ordered_json()},
      {"packages", machine.num_packages},
      {"smt", machine.has_smt()},
      {"numa_nodes", nodes},
      {"caches", caches},
      {"instructions", features.ToString()},
      {"isa", device::cpu::CpuIsaName(isa)},
      {"isa_forced", isa_forced},
      {"threads", machine.num_usable_cores()},
      {"memory_bytes", memory_bytes},
      {"memory_available_bytes", memory_available_bytes},
      {"huge_pages", transparent_huge_pages},
      {"shm_bytes", shm_bytes},
      {"gpu", has_nvidia_gpu},
      {"cuda", kCudaNote},
      {"missing", missing},
  };
  // A model name may hold bytes that are not UTF-8; they are replaced, not thrown over.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lockstep::topology
