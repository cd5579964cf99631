// The cheapest clock that may be compared along one thread: the time stamp counter where it is invariant, else the
// steady clock.
//
// Units:    ticks; NsPerTick converts
// Requires: differences are taken on one thread, or between threads only as a rough skew
// Threads:  any
// Capture:  Ticks: Run; NsPerTick: its first call waits until 10 ms of process life allow a calibration (Prepare)
// Cost:     about 20 cycles; a system call only where the counter is not invariant and the vDSO has no clock
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace lockstep::trace {

namespace internal {
extern const bool kUseTsc;  // CPUID 80000007h EDX bit 8: the counter runs at one rate in all power states
uint64_t SteadyTicks();
}  // namespace internal

inline uint64_t Ticks() {
#if defined(__x86_64__)
  if (internal::kUseTsc) return __rdtsc();
#endif
  return internal::SteadyTicks();
}

// Calibrated once against the steady clock; 1 where Ticks is the steady clock.
double NsPerTick();

}  // namespace lockstep::trace
