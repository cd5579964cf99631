// Where the governor's times come from: the machine in an engine, a script in a test.
//
// Units:   seconds
// Threads: any
#pragma once

#include <chrono>

namespace lockstep::spec {

class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes back.
  virtual double Now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  double Now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

}  // namespace lockstep::spec
