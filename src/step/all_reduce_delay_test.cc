#include "step/all_reduce_delay.h"

#include <gtest/gtest.h>

#include "trace/ticks.h"

namespace lockstep::step {
namespace {

double Us(const std::vector<uint64_t>& ticks, size_t rows) {
  return static_cast<double>(ticks[rows]) * trace::NsPerTick() / 1e3;
}

TEST(AllReduceDelay, IsLinearBetweenPointsAndConstantOutside) {
  auto points = ParseAllReduceDelays("2:50,4:200,8:100.5");
  ASSERT_TRUE(points.ok());
  const std::vector<uint64_t> ticks = AllReduceDelayTicks(*points, 16);
  ASSERT_EQ(ticks.size(), 17u);
  const double tolerance = trace::NsPerTick() / 1e3;
  EXPECT_NEAR(Us(ticks, 1), 50, tolerance);
  EXPECT_NEAR(Us(ticks, 2), 50, tolerance);
  EXPECT_NEAR(Us(ticks, 3), 125, tolerance);
  EXPECT_NEAR(Us(ticks, 4), 200, tolerance);
  EXPECT_NEAR(Us(ticks, 6), 150.25, tolerance);
  EXPECT_NEAR(Us(ticks, 8), 100.5, tolerance);
  EXPECT_NEAR(Us(ticks, 16), 100.5, tolerance);
}

TEST(AllReduceDelay, OneNumberIsForAllWidths) {
  auto points = ParseAllReduceDelays("59.5");
  ASSERT_TRUE(points.ok());
  const std::vector<uint64_t> ticks = AllReduceDelayTicks(*points, 4);
  for (size_t rows = 1; rows <= 4; ++rows) EXPECT_NEAR(Us(ticks, rows), 59.5, trace::NsPerTick() / 1e3);
  EXPECT_TRUE(AllReduceDelayTicks({}, 4).empty());
}

TEST(AllReduceDelay, BadTextIsNamed) {
  for (const char* text :
       {"",        "x",       "-1",  "nan",     "inf",   "1e9",   "1:",   ":5",    "1:5,", ",1:5",
        "1:5,1:6", "4:5,1:6", "0:5", "1:5;4:6", "1:5,4", "1.5:3", "1:-2", "1:nan", "1:5 ", "99999999999:1"}) {
    auto points = ParseAllReduceDelays(text);
    ASSERT_FALSE(points.ok()) << text;
    EXPECT_EQ(points.status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(points.status().message().starts_with(std::string("--emulate-allreduce-us ") + text + ":")) << text;
  }
}

}  // namespace
}  // namespace lockstep::step
