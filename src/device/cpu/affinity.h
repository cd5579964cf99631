// Ties a thread to a CPU.
//
// Errors:  kInvalidArgument  the CPU is not one that this process may use
// Threads: acts on the calling thread; threads it starts later inherit the binding
// Capture: Prepare
#pragma once

#include <vector>

#include "base/result.h"

namespace lockstep::device::cpu {

// CPUs (the system's numbers, ascending) that the calling thread may run on.
Result<std::vector<int>> AllowedCpus();

// Binds the calling thread to `cpu`. After an error its binding is as before.
Status PinThread(int cpu);

// Binds the calling thread to several CPUs: undoes a pin.
Status PinThread(const std::vector<int>& cpus);

}  // namespace lockstep::device::cpu
