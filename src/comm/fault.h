// A planted fault: which rank dies, stalls or lies, and at which step. Tests and drills of promise P6 use it.
//
// Errors:  kInvalidArgument  the text is not kind:rank=R,step=S
// Threads: a value
// Source:  LOCKSTEP_FAULT (base/env.h); kinds and examples in docs/errors.md
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace lockstep::comm {

enum class FaultKind : uint8_t {
  kNone,
  kKill,     // kill:    the rank's process gets SIGKILL; a rank that is a thread leaves without a word
  kStall,    // stall:   the rank's process stops (SIGSTOP); a rank that is a thread sleeps
  kCorrupt,  // corrupt: the step code changes what the rank publishes
  kRound,  // round:   from that step on, every rank rounds otherwise in verify steps of more than one row; names no rank
};

struct FaultPlan {
  FaultKind kind = FaultKind::kNone;
  int rank = -1;  // -1: all ranks (kRound)
  uint64_t step = 0;

  bool Hits(FaultKind k, int r, uint64_t s) const { return kind == k && rank == r && step == s; }
};

// "kill:rank=1,step=20", "round:step=20"; the empty text is no fault.
Result<FaultPlan> ParseFault(const std::string& text);

}  // namespace lockstep::comm
