// Where the ranks of a group live.
//
// Errors:   none
// Threads:  a value
#pragma once

#include <cstdint>

namespace lockstep::comm {

enum class RankMode : uint8_t {
  kThread,   // ranks are threads of the caller's process
  kProcess,  // ranks 1..W-1 are forked from the caller before it has any other thread
};

}  // namespace lockstep::comm
