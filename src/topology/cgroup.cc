#include "topology/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace lockstep::topology {
namespace {

bool ReadLine(const std::string& path, std::string* line) {
  std::ifstream file(path);
  return static_cast<bool>(std::getline(file, *line));
}

template <typename T>
void Tighten(T limit, T* held) {
  if (limit > 0 && (*held == 0 || limit < *held)) *held = limit;
}

// v1 writes "no limit" as the largest page-aligned number.
constexpr double kUnlimitedBytes = 0x1p60;

void TightenBytes(const std::string& text, uint64_t* held) {
  const double value = std::strtod(text.c_str(), nullptr);  // "max" is 0: no limit
  if (value > 0 && value < kUnlimitedBytes) Tighten(static_cast<uint64_t>(value), held);
}

// "quota period" in microseconds; quota "max" or -1 is no limit.
void TightenCpus(const std::string& quota, const std::string& period, double* held) {
  const double q = std::strtod(quota.c_str(), nullptr), p = std::strtod(period.c_str(), nullptr);
  if (q > 0 && p > 0) Tighten(q / p, held);
}

// Calls read(folder) for the group's folder and each above it. In a container the path may be the host's, of which only
// the root is visible; folders that do not exist read as nothing.
template <typename Read>
void ForEachLevel(const std::string& base, std::string path, Read read) {
  while (true) {
    read(base + path);
    if (path.empty()) return;
    const size_t slash = path.rfind('/');
    path = slash == std::string::npos ? "" : path.substr(0, slash);
  }
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root) {
  CgroupLimits limits;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    const std::string list = "," + controllers + ",";
    if (controllers.empty()) {
      ForEachLevel(root + "/sys/fs/cgroup", path, [&](const std::string& folder) {
        std::string text, quota, period;
        if (ReadLine(folder + "/cpu.max", &text)) {
          std::istringstream(text) >> quota >> period;
          TightenCpus(quota, period, &limits.cpus);
        }
        if (ReadLine(folder + "/memory.max", &text)) TightenBytes(text, &limits.memory_bytes);
      });
    }
    if (list.find(",cpu,") != std::string::npos) {
      for (const std::string& name : {std::string("cpu"), controllers}) {
        ForEachLevel(fmt::format("{}/sys/fs/cgroup/{}", root, name), path, [&](const std::string& folder) {
          std::string quota, period;
          if (ReadLine(folder + "/cpu.cfs_quota_us", &quota) && ReadLine(folder + "/cpu.cfs_period_us", &period)) {
            TightenCpus(quota, period, &limits.cpus);
          }
        });
      }
    }
    if (list.find(",memory,") != std::string::npos) {
      ForEachLevel(root + "/sys/fs/cgroup/memory", path, [&](const std::string& folder) {
        std::string text;
        if (ReadLine(folder + "/memory.limit_in_bytes", &text)) TightenBytes(text, &limits.memory_bytes);
      });
    }
  }
  return limits;
}

}  // namespace lockstep::topology
