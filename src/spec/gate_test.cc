#include "spec/gate.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace lockstep::spec {
namespace {

struct Totals {
  int64_t tokens = 0;
  int64_t rounds = 0;
  double seconds = 0;
};

// Runs the gate against scripted costs until `num_tokens` are out. tokens_at gives what a round at that token emits.
Totals Simulate(Gate& gate, int64_t num_tokens, double plain, double round, int width,
                const std::function<int(int64_t)>& tokens_at) {
  Totals t;
  while (t.tokens < num_tokens) {
    if (gate.Decide(width).draft) {
      const int tokens = tokens_at(t.tokens);
      gate.ReportRound(width, tokens, round);
      t.tokens += tokens;
      t.seconds += round;
      ++t.rounds;
    } else {
      gate.ReportPlain(plain);
      ++t.tokens;
      t.seconds += plain;
    }
  }
  return t;
}

TEST(Gate, StartsPlainThenTriesThenFollowsWhatPays) {
  Gate gate;
  EXPECT_EQ(gate.Decide(4).reason, Gate::Reason::kNoPlainTime);
  gate.ReportPlain(0.5);  // cold: does not stay in the estimate
  gate.ReportPlain(0.010);
  EXPECT_DOUBLE_EQ(gate.plain_seconds(), 0.010);
  for (int i = 0; i < kGateTrialRounds; ++i) {
    EXPECT_EQ(gate.Decide(4).reason, Gate::Reason::kTrial);
    gate.ReportRound(4, 3, 0.014);
  }
  EXPECT_EQ(gate.Decide(4).reason, Gate::Reason::kPays);
  EXPECT_EQ(gate.Decide(4).reason, Gate::Reason::kPays);  // asking changes nothing
}

TEST(Gate, ADrafterThatIsNeverRightCostsLessAndLess) {
  Gate gate;
  const auto never = [](int64_t) { return 1; };
  Totals first = Simulate(gate, 1000, 0.010, 0.014, 4, never);
  EXPECT_LE(first.rounds, kGateTrialRounds + 5);
  Totals later = Simulate(gate, 20000, 0.010, 0.014, 4, never);
  EXPECT_LE(later.seconds, 20000 * 0.010 * 1.001);
  EXPECT_GE(later.rounds, 15);  // never given up for good
}

TEST(Gate, ADrafterThatPaysStaysOnAndTheBoundaryIsWhereItBreaksEven) {
  Gate good;
  Totals t = Simulate(good, 5000, 0.010, 0.015, 5, [](int64_t at) { return at % 2 ? 3 : 1; });
  EXPECT_LT(t.seconds, 5000 * 0.010 * 0.82);
  // 1.4 tokens for 1.5 steps lose, though a draft is often right.
  Gate bad;
  t = Simulate(bad, 5000, 0.010, 0.0155, 5, [](int64_t at) { return at % 5 < 2 ? 2 : 1; });
  EXPECT_LT(t.seconds, 5000 * 0.010 * 1.03);
}

TEST(Gate, ADrafterThatBecomesGoodIsFoundAgain) {
  Gate gate;
  Simulate(gate, 500, 0.010, 0.014, 4, [](int64_t) { return 1; });
  Totals t = Simulate(gate, 4000, 0.010, 0.014, 4, [](int64_t) { return 4; });
  EXPECT_LT(t.seconds, 4000 * 0.010 * 0.5);
  // And one that becomes bad is left again.
  t = Simulate(gate, 4000, 0.010, 0.014, 4, [](int64_t) { return 1; });
  EXPECT_LT(t.seconds, 4000 * 0.010 * 1.01);
}

TEST(Gate, TimesAreKeptByWidthAndTheWiderNeighbourStandsIn) {
  Gate gate;
  EXPECT_EQ(gate.round_seconds(4), 0);
  gate.ReportPlain(0.01);
  gate.ReportPlain(0.01);
  gate.ReportRound(2, 2, 0.012);
  gate.ReportRound(8, 2, 0.030);
  EXPECT_DOUBLE_EQ(gate.round_seconds(2), 0.012);
  EXPECT_DOUBLE_EQ(gate.round_seconds(5), 0.030);
  EXPECT_DOUBLE_EQ(gate.round_seconds(4), 0.012);
  EXPECT_DOUBLE_EQ(gate.round_seconds(256), 0.030);
  gate.ReportRound(2, 2, 0.012);
  gate.ReportRound(2, 2, 0.012);
  EXPECT_TRUE(gate.Decide(2).draft);   // 2 tokens in 1.2 steps
  EXPECT_FALSE(gate.Decide(8).draft);  // 2 tokens in 3 steps
}

TEST(Gate, OneHiccupDoesNotCloseItAndANewRequestKeepsTheTimes) {
  Gate gate;
  Simulate(gate, 200, 0.010, 0.014, 4, [](int64_t) { return 3; });
  gate.ReportRound(4, 3, 5.0);
  EXPECT_TRUE(gate.Decide(4).draft);
  gate.StartRequest();
  EXPECT_EQ(gate.Decide(4).reason, Gate::Reason::kTrial);
  EXPECT_GT(gate.plain_seconds(), 0);
  EXPECT_STREQ(Gate::ReasonName(Gate::Reason::kPays), "pays");
}

TEST(Gate, TheSameReportsGiveTheSameDecisions) {
  Gate a, b;
  for (int i = 0; i < 2000; ++i) {
    const Gate::Decision da = a.Decide(2 + i % 7), db = b.Decide(2 + i % 7);
    ASSERT_EQ(da.draft, db.draft);
    ASSERT_EQ(da.reason, db.reason);
    for (Gate* gate : {&a, &b}) {
      if (da.draft)
        gate->ReportRound(2 + i % 7, 1 + i % 3, 0.011 + 0.001 * (i % 5));
      else
        gate->ReportPlain(0.010 + 0.0001 * (i % 11));
    }
  }
}

}  // namespace
}  // namespace lockstep::spec
