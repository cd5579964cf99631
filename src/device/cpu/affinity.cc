#include "device/cpu/affinity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/check.h"

namespace lockstep::device::cpu {
namespace {

// cpu_set_t ends at 1024 CPUs; sets are allocated to the size that the kernel wants.
constexpr int kMaxCpus = 1 << 16;

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeSet>;

}  // namespace

Result<std::vector<int>> AllowedCpus() {
  for (int count = 1024; count <= kMaxCpus; count *= 2) {
    CpuSet set(CPU_ALLOC(count));
    if (!set) return OutOfMemory("a CPU set");
    const size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;  // the kernel knows more CPUs than the set holds
      return Internal(fmt::format("cannot read the CPU affinity: {}", std::strerror(errno)));
    }
    std::vector<int> cpus;
    for (int cpu = 0; cpu < count; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  return Internal(fmt::format("more than {} CPUs", kMaxCpus));
}

Status PinThread(const std::vector<int>& cpus) {
  CpuSet set(CPU_ALLOC(kMaxCpus));
  if (!set) return OutOfMemory("a CPU set");
  const size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  CPU_ZERO_S(bytes, set.get());
  for (int cpu : cpus) {
    if (cpu < 0 || cpu >= kMaxCpus) return InvalidArgument(fmt::format("cannot pin to CPU {}", cpu));
    CPU_SET_S(cpu, bytes, set.get());
  }
  if (sched_setaffinity(0, bytes, set.get()) != 0) {
    return InvalidArgument(
        fmt::format("cannot pin a thread to CPU {}: {}", fmt::join(cpus, ","), std::strerror(errno)));
  }
  return OkStatus();
}

Status PinThread(int cpu) {
  return PinThread(std::vector<int>{cpu});
}

}  // namespace lockstep::device::cpu
