// Ctrl-C: the first asks the running work to end cleanly, the second ends the process.
//
// Threads:  one guard at a time, on the main thread
#pragma once

#include <functional>

namespace lockstep::cli {

class InterruptGuard {
 public:
  // `request` must be safe in a signal handler (it sets an atomic flag).
  explicit InterruptGuard(std::function<void()> request);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool interrupted();
};

}  // namespace lockstep::cli
