// Helpers of comm's tests: which rank modes this build can run, seeded delays, a pool with a step function.
//
// Errors:  a false LS_CHECK ends the test program
// Threads: any
#pragma once

#include <sched.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/rank_pool.h"

namespace lockstep::comm::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// The thread sanitizer sees one process only, and runs a thread of its own, which a fork would lose.
inline std::vector<RankMode> Modes() {
  if (kThreadSanitizer) return {RankMode::kThread};
  return {RankMode::kThread, RankMode::kProcess};
}
inline std::string ModeName(RankMode mode) {
  return mode == RankMode::kThread ? "threads" : "processes";
}

inline uint64_t Mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Mostly nothing, sometimes a yield, rarely a sleep: arrivals in every order.
inline void RandomDelay(uint64_t seed) {
  const uint64_t r = Mix(seed) % 64;
  if (r == 0) std::this_thread::sleep_for(std::chrono::microseconds(Mix(seed + 1) % 80));
  if (r < 6) sched_yield();
}

inline GroupOptions Options(int world, int threads, RankMode mode, double timeout_secs = 30) {
  GroupOptions options;
  options.world_size = world;
  options.threads_per_rank = threads;
  options.mode = mode;
  options.shared_bytes = 1 << 20;
  options.timeout_secs = timeout_secs;
  // A test host has other work: a member that spins for its share of the cores would slow the whole run down.
  options.oversubscribed = world * threads >= static_cast<int>(std::thread::hardware_concurrency());
  return options;
}

using Step = std::function<void(Member&, uint32_t command)>;

// Every command runs `step` in all members.
inline RankPool::Body StepLoop(Step step) {
  return [step](Member& member) {
    uint32_t command = 0;
    while (member.WaitCommand(&command)) step(member, command);
    return OkStatus();
  };
}

inline double SecsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace lockstep::comm::testing
