#include "trace/step_breakdown.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace lockstep::trace {
namespace {

TEST(Ticks, AgreeWithTheSteadyClock) {
  double ns_per_tick = NsPerTick();
  auto begin = std::chrono::steady_clock::now();
  uint64_t begin_ticks = Ticks();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  uint64_t end_ticks = Ticks();
  double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
  // 5 %: on a loaded machine the thread may be moved off between the two clock reads.
  EXPECT_NEAR((end_ticks - begin_ticks) * ns_per_tick / ns, 1.0, 0.05);
}

TEST(Stopwatch, EveryIntervalHasOneOwner) {
  Stopwatch watch;
  watch.Start();
  uint64_t begin = Ticks();
  for (int step = 0; step < 4; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    watch.Stamp(Owner::kMatmul);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    watch.Stamp(Owner::kSample);
    watch.EndStep();
  }
  double elapsed_us = (Ticks() - begin) * NsPerTick() * 1e-3;
  StepSummary summary = Summarize(watch.breakdown());
  EXPECT_EQ(summary.num_steps, 4u);
  EXPECT_GE(summary.mean_us[static_cast<int>(Owner::kMatmul)], 1900);
  EXPECT_GE(summary.mean_us[static_cast<int>(Owner::kSample)], 900);
  EXPECT_EQ(summary.mean_us[static_cast<int>(Owner::kOther)], 0);
  EXPECT_LE(summary.total_us * 4, elapsed_us * 1.01 + 50);
  double shares = 0;
  for (double share : summary.share) shares += share;
  EXPECT_NEAR(shares, 1.0, 1e-9);
}

TEST(Stopwatch, AWaitInsideAnIntervalIsBookedApartAndNeverExceedsIt) {
  Stopwatch watch;
  watch.Start();
  watch.StampSplit(Owner::kAllReduceMove, Owner::kAllReduceWait, ~uint64_t{0});
  EXPECT_EQ(watch.breakdown().ticks[static_cast<int>(Owner::kAllReduceMove)], 0u);
  watch.Reset();
  watch.Start();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  watch.StampSplit(Owner::kAllReduceMove, Owner::kAllReduceWait, 10);
  EXPECT_EQ(watch.breakdown().ticks[static_cast<int>(Owner::kAllReduceWait)], 10u);
  EXPECT_GT(watch.breakdown().ticks[static_cast<int>(Owner::kAllReduceMove)], 10u);
}

TEST(StepBreakdown, NoStepsIsAllZero) {
  StepSummary summary = Summarize({});
  EXPECT_EQ(summary.total_us, 0);
  EXPECT_NE(summary.ToString().find("allreduce_wait"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::trace
