#include "spec/governor.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::spec {
namespace {

class ScriptedClock final : public Clock {
 public:
  double Now() const override { return now; }
  double now = 0;
};

double StepSecs(int rows, double row_secs) {
  return 1 + row_secs * (rows - 1);
}

// A governor that knows steps of so much a row, for n requests.
struct Fixture {
  explicit Fixture(int num_requests, double row_secs, GovernorOptions options = {})
      : n(num_requests), row(row_secs), governor(&clock, options) {
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32}) {
      for (int i = 0; i < (rows == 1 ? 8 : 1); ++i) governor.AddPrepared(rows, StepSecs(rows, row));
    }
    governor.AddDrafter("one");
    for (int i = 0; i < n; ++i) governor.StartRequest(i);
    for (int i = 0; i < 6; ++i) Round({});  // plain steps of n are measured
  }
  // Each request proposes a chain with the given probability of each node; none where there is no entry.
  std::vector<RequestDecision> Round(const std::vector<float>& chance, int nodes = 4, bool accept = true) {
    std::vector<RoundRequest> requests;
    for (int i = 0; i < n; ++i) requests.push_back({i, 100, nodes});
    governor.BeginRound(requests);
    for (int i = 0; i < n; ++i) {
      for (int d; (d = governor.NextDrafter(i)) >= 0;) {
        ++drafter_runs;
        clock.now += draft_secs;
        step::DraftTree tree;
        tree.Reset(0);
        std::vector<float> reach = {1.0f};
        if (i < static_cast<int>(chance.size())) {
          for (int k = 0; k < nodes; ++k) {
            tree.Add(k, k);
            reach.push_back(reach.back() * chance[static_cast<size_t>(i)]);
          }
        }
        governor.Offer(i, d, tree, reach);
      }
    }
    auto decided = governor.Decide();
    std::vector<RequestDecision> decisions(decided.begin(), decided.end());
    int rows = n;
    std::vector<RequestOutcome> outcomes;
    for (const RequestDecision& d : decisions) {
      rows += static_cast<int>(d.rows.size());
      if (accept)
        outcomes.push_back({static_cast<int64_t>(d.rows.size()) + 1, d.rows});
      else
        outcomes.push_back({1, {}});
    }
    clock.now += StepSecs(rows, row);
    governor.EndRound(outcomes);
    return decisions;
  }

  int n;
  double row;
  double draft_secs = 0;
  int drafter_runs = 0;
  ScriptedClock clock;
  Governor governor;
};

TEST(Governor, RowsGoWhereTheGainIsHighest) {
  GovernorOptions options;
  options.max_slowdown = 100;
  Fixture f(3, 0.1, options);
  const auto d = f.Round({0.9f, 0.02f, 0.6f});
  EXPECT_EQ(f.governor.last_reason(), Reason::kPays);
  EXPECT_GT(d[0].rows.size(), d[2].rows.size());
  EXPECT_GT(d[2].rows.size(), 0u);
  EXPECT_TRUE(d[1].rows.empty());
  EXPECT_EQ(d[1].drafter, -1);
}

// A drafter that reads a long prompt is dear once: the ledger pays, and the next proposal is not expected to be.
TEST(Governor, OpeningIsChargedAndNoMeasure) {
  for (bool opens : {true, false}) {
    ScriptedClock clock;
    Governor governor(&clock);
    for (int rows : {1, 2, 4, 8}) {
      for (int i = 0; i < (rows == 1 ? 8 : 1); ++i) governor.AddPrepared(rows, StepSecs(rows, 0.1));
    }
    governor.AddDrafter("one");
    governor.StartRequest(0);
    const RoundRequest request{0, 100, 4};
    governor.BeginRound({&request, 1});
    ASSERT_EQ(governor.NextDrafter(0), 0);
    clock.now += 2;
    step::DraftTree tree;
    tree.Reset(0);
    governor.Offer(0, 0, tree, std::vector<float>{1.0f}, opens);
    governor.Decide();
    clock.now += 1;
    const RequestOutcome outcome{1, {}};
    governor.EndRound({&outcome, 1});
    EXPECT_EQ(governor.costs().PredictDraft(0), opens ? 0 : 2);
    EXPECT_LT(governor.ledger().saved_secs(), -1.9) << opens;
  }
}

// Two requests copy, one has nothing to draft: its tokens come slower only as far as is allowed.
TEST(Governor, NoRequestIsSlowedBeyondTheLimitByItsNeighbours) {
  for (double limit : {0.05, 0.25, 3.0}) {
    GovernorOptions options;
    options.max_slowdown = limit;
    Fixture f(3, 0.1, options);
    size_t most = 0;
    for (int i = 0; i < 20; ++i) {
      const auto d = f.Round({0.95f, 0.95f}, 8);
      const size_t rows = d[0].rows.size() + d[1].rows.size();
      EXPECT_LE(StepSecs(3 + static_cast<int>(rows), 0.1), (1 + limit) * StepSecs(3, 0.1) + 1e-9);
      most = std::max(most, rows);
    }
    EXPECT_EQ(most == 0, limit == 0.05);  // one row more is 8 %
    EXPECT_EQ(most == 16, limit == 3.0);
  }
}

TEST(Governor, DearRowsMakeShortDraftsAndCheapOnesLong) {
  size_t rows[2];
  for (int cheap : {0, 1}) {
    Fixture f(1, cheap ? 0.02 : 0.3);
    rows[cheap] = f.Round({0.7f}, 16)[0].rows.size();
  }
  EXPECT_GT(rows[0], 0u);
  EXPECT_GT(rows[1], 2 * rows[0]);
}

// A drafter that loses is let be, costs nothing then, and is found again when it has become good.
TEST(Governor, ADrafterThatLosesIsNotRunAndIsFoundAgain) {
  Fixture f(1, 0.1);
  f.draft_secs = 0.05;
  for (int i = 0; i < 1000; ++i) f.Round({0.9f}, 4, false);
  const int runs = f.drafter_runs;
  for (int i = 0; i < 1000; ++i) f.Round({0.9f}, 4, false);
  EXPECT_LT(f.drafter_runs - runs, 30);
  EXPECT_EQ(f.governor.last_reason(), Reason::kOff);
  EXPECT_GE(f.governor.ledger().saved_secs(), -0.005 * 2000 - 4);
  int until = 0;
  while (until < 5000 && f.governor.last_reason() != Reason::kPays) {
    f.Round({0.9f}, 4, true);
    ++until;
  }
  EXPECT_LT(until, 3000);
}

TEST(Governor, TheLedgerShutsARoundThatItCannotCover) {
  GovernorOptions options;
  options.learns = false;
  options.ledger.start_steps = 0;
  options.ledger.epsilon = 0.001;
  Fixture f(1, 0.5, options);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(f.Round({0.9f}, 4)[0].rows.empty());
  EXPECT_EQ(f.governor.last_reason(), Reason::kLedger);
  EXPECT_EQ(f.governor.counters().rounds, 0);
}

TEST(Governor, PlainStepsAreMeasuredAgainWhileDraftingPays) {
  Fixture f(1, 0.02);
  for (int i = 0; i < 20; ++i) f.Round({0.9f});
  int probes = 0;
  for (int i = 0; i < 660; ++i) {
    f.Round({0.9f});
    probes += f.governor.last_reason() == Reason::kPlainProbe;
  }
  EXPECT_EQ(probes, 20);  // pairs, behind 64 rounds each
  EXPECT_NEAR(f.governor.plain().Mean(1, 100), 1, 1e-9);
}

// Of two drafters the dear one runs only where it promises more than the cheap one has on the table.
TEST(Governor, DraftersCompete) {
  ScriptedClock clock;
  Governor governor(&clock);
  for (int rows : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    for (int i = 0; i < (rows == 1 ? 8 : 1); ++i) governor.AddPrepared(rows, StepSecs(rows, 0.05));
  }
  governor.AddDrafter("cheap");
  governor.AddDrafter("dear");
  governor.StartRequest(1);
  int chosen[2][2] = {}, dear_runs[2] = {};
  for (int i = 0; i < 2000; ++i) {
    const int cheap_good = i / 1000;
    const RoundRequest request{1, 50, 4};
    governor.BeginRound(std::span(&request, 1));
    double accepted[2] = {cheap_good ? 1.0 : 0.0, 0.6};
    for (int d; (d = governor.NextDrafter(0)) >= 0;) {
      clock.now += d == 1 ? 0.3 : 0.0001;
      dear_runs[cheap_good] += d == 1;
      step::DraftTree tree;
      tree.Reset(0);
      std::vector<float> reach = {1.0f};
      if (d == 1 || cheap_good) {
        for (int k = 0; k < 4; ++k) {
          tree.Add(k, k);
          reach.push_back(reach.back() * (d == 1 ? 0.6f : 0.97f));
        }
      }
      governor.Offer(0, d, tree, reach);
    }
    const RequestDecision decision = governor.Decide()[0];
    std::vector<int32_t> path;
    if (decision.drafter >= 0) {
      ++chosen[cheap_good][decision.drafter];
      const auto length = static_cast<size_t>(accepted[decision.drafter] * 4 + 0.5);
      path.assign(decision.rows.begin(), decision.rows.begin() + std::min<int64_t>(length, decision.rows.size()));
    }
    clock.now += StepSecs(1 + static_cast<int>(decision.rows.size()), 0.05);
    const RequestOutcome outcome{static_cast<int64_t>(path.size()) + 1, path};
    governor.EndRound(std::span(&outcome, 1));
  }
  EXPECT_GT(chosen[0][1], 900);
  EXPECT_EQ(chosen[0][0], 0);
  EXPECT_GT(chosen[1][0], 900);
  EXPECT_LT(dear_runs[1], 50);
}

TEST(PlainTime, TheBoundLiesBelowTheLineAndWidensAway) {
  PlainTime plain;
  for (int i = 0; i < 64; ++i) plain.Add(1, 10 * i, 1 + 0.001 * 10 * i + (i % 2 ? 0.05 : -0.05));
  EXPECT_NEAR(plain.Mean(1, 300), 1.3, 0.01);
  EXPECT_LT(plain.Lower(1, 300), plain.Mean(1, 300));
  EXPECT_GT(plain.Lower(1, 300), plain.Mean(1, 300) - 0.03);
  EXPECT_GT(plain.Mean(1, 3000) - plain.Lower(1, 3000), 2 * (plain.Mean(1, 300) - plain.Lower(1, 300)));
  EXPECT_FALSE(plain.Known(2));
}

TEST(PlainTime, AHiccupLowersTheBoundAndAFasterMachineIsSeen) {
  PlainTime plain;
  for (int i = 0; i < 64; ++i) plain.Add(1, 100, i == 30 ? 40 : 1);
  EXPECT_LE(plain.Lower(1, 100), 1.001);
  EXPECT_LE(plain.Mean(1, 100), 1.01);
  for (int i = 0; i < 5; ++i) plain.Add(1, 100, 0.5);
  EXPECT_LE(plain.Lower(1, 100), 0.501);
}

TEST(CostTable, OneHiccupShutsNoShape) {
  PlainTime plain;
  for (int i = 0; i < 8; ++i) plain.Add(1, 0, 1);
  CostTable costs;
  for (int rows : {1, 2, 4, 8}) costs.AddPrepared(rows, StepSecs(rows, 0.1));
  EXPECT_NEAR(costs.Predict(1, 3, 0, plain), 1.2, 1e-9);
  costs.Add(1, 4, 0, 40, plain);
  EXPECT_NEAR(costs.Predict(1, 4, 0, plain), 1.3, 1e-9);
  for (int i = 0; i < 6; ++i) costs.Add(1, 4, 0, 1.4, plain);
  EXPECT_NEAR(costs.Predict(1, 4, 0, plain), 1.4, 1e-9);
  EXPECT_NEAR(costs.Worst(1, 4, 0, 0, plain), 1.25 * 1.4, 1e-9);
  for (int i = 0; i < 3; ++i) costs.Add(1, 4, 0, 9, plain);  // no longer one
  EXPECT_NEAR(costs.Worst(1, 4, 0, 0, plain), 9, 1e-9);
}

}  // namespace
}  // namespace lockstep::spec
