#include "device/cpu/read_bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <thread>

#include "base/bits.h"
#include "base/check.h"
#include "device/cpu/affinity.h"
#include "device/cpu/memory.h"

namespace lockstep::device::cpu {
namespace {

using Clock = std::chrono::steady_clock;
using Line = uint64_t __attribute__((vector_size(64)));

constexpr size_t kStepLines = 4;  // lines a turn of the loop, each with its own sum
// A round shorter than this would measure the meeting of the threads.
constexpr size_t kRoundBytes = size_t{16} << 20;

uint64_t Fold(const Line& line) {
  uint64_t sum = 0;
  for (int i = 0; i < 8; ++i) sum ^= line[i];
  return sum;
}

// The exclusive or of all words. kAhead: bytes that a prefetch is ahead; 0 for none.
template <size_t kAhead>
uint64_t ReadAll(const Line* lines, size_t count) {
  Line sums[kStepLines] = {};
  for (size_t i = 0; i < count; i += kStepLines) {
    for (size_t j = 0; j < kStepLines; ++j) {
      if (kAhead > 0) __builtin_prefetch(reinterpret_cast<const char*>(lines + i + j) + kAhead);
      sums[j] ^= lines[i + j];
    }
  }
  return Fold(sums[0] ^ sums[1] ^ sums[2] ^ sums[3]);
}

struct Shared {
  explicit Shared(int n) : num_threads(n) {}

  // True once all threads are here for the `meeting`-th time (from 1).
  void Meet(int meeting) {
    arrived.fetch_add(1, std::memory_order_acq_rel);
    while (arrived.load(std::memory_order_acquire) < meeting * num_threads) {
      if (gone.load(std::memory_order_relaxed) != 0) return;
      std::this_thread::yield();
    }
  }

  const int num_threads;
  std::atomic<int> arrived{0};
  std::atomic<int> gone{0};  // a thread could not be started: nobody waits for it
};

}  // namespace

Result<double> MeasureReadGbps(const ReadBandwidthOptions& o) {
  LS_CHECK_GE(o.bytes, size_t{1});
  LS_CHECK_GE(o.cpus.size(), size_t{1});
  const size_t num_threads = o.cpus.size();
  const size_t lines = AlignUp<size_t>(CeilDiv(CeilDiv(o.bytes, num_threads), sizeof(Line)), kStepLines);
  LS_ASSIGN_OR_RETURN(Memory memory, Memory::Allocate(lines * sizeof(Line) * num_threads, "the bandwidth measurement"));
  const size_t all_bytes = lines * sizeof(Line) * num_threads;
  const size_t passes = std::max<size_t>(1, kRoundBytes / all_bytes);
  Shared shared(static_cast<int>(num_threads));
  double best_secs = 1e30;
  std::vector<Clock::time_point> started(num_threads);

  auto body = [&](size_t thread) {
    // A refused pin makes the figure worse, never wrong.
    if (o.cpus[thread] >= 0) (void)PinThread(o.cpus[thread]);
    Line* mine = reinterpret_cast<Line*>(memory.data()) + thread * lines;
    uint64_t word = 0x9e3779b97f4a7c15u * (thread + 1), expected = 0;
    for (size_t i = 0; i < lines; ++i) {
      for (int j = 0; j < 8; ++j) mine[i][j] = word = word * 6364136223846793005u + 1442695040888963407u;
      expected ^= Fold(mine[i]);
    }
    int meeting = 0;
    for (int round = 0; round < o.rounds; ++round) {
      shared.Meet(++meeting);
      started[thread] = Clock::now();
      for (size_t pass = 0; pass < passes; ++pass) {
        const uint64_t sum = round % 3 == 0   ? ReadAll<0>(mine, lines)
                             : round % 3 == 1 ? ReadAll<1536>(mine, lines)
                                              : ReadAll<8192>(mine, lines);
        LS_CHECK_EQ(sum, expected);  // also keeps the compiler from leaving the loads out
      }
      shared.Meet(++meeting);
      if (shared.gone.load(std::memory_order_relaxed) != 0) return;
      if (thread != 0) continue;
      // From the first that began: one that was held up reads alone later, and faster.
      const auto first = *std::min_element(started.begin(), started.end());
      best_secs = std::min(best_secs, std::chrono::duration<double>(Clock::now() - first).count());
    }
  };
  std::vector<std::thread> threads;
  Status status;
  try {
    for (size_t thread = 0; thread < num_threads; ++thread) threads.emplace_back(body, thread);
  } catch (const std::system_error& error) {
    shared.gone.store(1, std::memory_order_relaxed);
    status =
        OutOfMemory(fmt::format("cannot start thread {} of {}: {}", threads.size() + 1, num_threads, error.what()));
  }
  for (std::thread& t : threads) t.join();
  LS_RETURN_IF_ERROR(status);
  return static_cast<double>(all_bytes) * static_cast<double>(passes) / best_secs / 1e9;
}

}  // namespace lockstep::device::cpu
