#include "trace/ticks.h"

#include <chrono>
#include <thread>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lockstep::trace {
namespace {

bool HasInvariantTsc() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(0x80000007u, &eax, &ebx, &ecx, &edx)) return false;
  return (edx >> 8) & 1;
#else
  return false;
#endif
}

struct Origin {
  uint64_t ticks = Ticks();
  uint64_t steady_ns = internal::SteadyTicks();
};

}  // namespace

namespace internal {

const bool kUseTsc = HasInvariantTsc();

uint64_t SteadyTicks() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace internal

namespace {
const Origin kOrigin;  // after kUseTsc: one file initialises from top to bottom

double Calibrate() {
  if (!internal::kUseTsc) return 1.0;
  // 10 ms make the two clock reads' own jitter (below 1 us) an error below 0.01 %.
  constexpr uint64_t kBaselineNs = 10'000'000;
  uint64_t now_ns = internal::SteadyTicks();
  while (now_ns - kOrigin.steady_ns < kBaselineNs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    now_ns = internal::SteadyTicks();
  }
  uint64_t ticks = Ticks() - kOrigin.ticks;
  return ticks == 0 ? 1.0 : static_cast<double>(now_ns - kOrigin.steady_ns) / ticks;
}
}  // namespace

double NsPerTick() {
  static const double ns_per_tick = Calibrate();
  return ns_per_tick;
}

}  // namespace lockstep::trace
