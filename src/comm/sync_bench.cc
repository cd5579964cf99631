// Time of a SyncWorld: `sync_bench WORLD THREADS [process]`. Members do nothing else, so a call costs what the words
// need to travel. Batches are timed, not calls: whoever arrives last does not wait, and half of all calls would seem
// to be free.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "comm/test_util.h"
#include "trace/ticks.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::comm;
  const int world = argc > 1 ? std::atoi(argv[1]) : 2;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const bool process = argc > 3 && std::strcmp(argv[3], "process") == 0;
  constexpr int kBatches = 2000, kCallsPerBatch = 100;
  std::vector<uint64_t> ticks;
  auto step = [&](Member& m, uint32_t) {
    for (int batch = 0; batch < kBatches; ++batch) {
      const uint64_t begin = trace::Ticks();
      for (int i = 0; i < kCallsPerBatch; ++i) {
        if (!m.SyncWorld(SyncOp::kAllReduce)) return;
      }
      if (m.is_leader()) ticks.push_back(trace::Ticks() - begin);
    }
  };
  GroupOptions options = testing::Options(world, threads, process ? RankMode::kProcess : RankMode::kThread);
  options.oversubscribed = world * threads > static_cast<int>(std::thread::hardware_concurrency());
  auto pool = RankPool::Start(options, testing::StepLoop(step));
  if (!pool.ok()) {
    fmt::print(stderr, "{}\n", pool.status().message());
    return 1;
  }
  ticks.reserve(kBatches);
  (*pool)->leader().PostCommand(0);
  step((*pool)->leader(), 0);
  Status status = (*pool)->Join();
  if (!status.ok()) fmt::print(stderr, "{}\n", status.message());
  std::sort(ticks.begin(), ticks.end());
  double mean = 0;
  for (uint64_t t : ticks) mean += static_cast<double>(t);
  const double ns = trace::NsPerTick() / kCallsPerBatch;
  fmt::print("{} ranks x {} {}: p50 {:.0f} ns, p99 {:.0f} ns, mean {:.0f} ns\n", world, threads,
             process ? "processes" : "threads", ticks[ticks.size() / 2] * ns, ticks[ticks.size() * 99 / 100] * ns,
             mean * ns / ticks.size());
  return 0;
}
