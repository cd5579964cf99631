// Every environment variable that Lockstep reads, each once, at first use. Nothing else calls getenv.
//
// Threads: any, after the first call
#pragma once

#include <string>

namespace lockstep {

struct Env {
  std::string cpu_isa;       // LOCKSTEP_CPU_ISA: generic, avx2, avx512 or amx; empty = the widest the machine has
  std::string test_model;    // LOCKSTEP_TEST_MODEL: the model of the tests on real weights
  std::string fault;         // LOCKSTEP_FAULT: a planted fault, e.g. "kill:rank=1,step=20" (docs/errors.md)
  double rank_timeout_secs;  // LOCKSTEP_RANK_TIMEOUT: how long a rank waits for another (default 30); -1: unreadable
  bool no_color;             // NO_COLOR is set and not empty

  static const Env& Get();
};

}  // namespace lockstep
