// "Never lose" against a scripted machine whose true costs are known: whatever a drafter does, the total stays within
// 0.5 % of plain decoding and four steps, and no stretch loses more than 0.5 % and 32 steps, one overrun each.
//
// The machine is a clock that the script moves. Plain decoding's time for the same tokens is summed beside it, with the
// same noise: virtual plain step j costs the same whether a run takes it or jumps over it.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "spec/governor.h"

namespace lockstep::spec {
namespace {

constexpr int kRounds = 100000;

class ScriptedClock final : public Clock {
 public:
  double Now() const override { return now_; }
  void Advance(double secs) { now_ += secs; }

 private:
  double now_ = 0;
};

// Uniform in [0, 1): a function of its arguments, so that two runs see the same.
double Uniform(uint64_t seed, uint64_t a, uint64_t b) {
  uint64_t z = seed * 0x9e3779b97f4a7c15ull + a * 0xbf58476d1ce4e5b9ull + b * 0x94d049bb133111ebull + 1;
  for (int i = 0; i < 3; ++i) z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull + 0x9e3779b97f4a7c15ull;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

double Gauss(uint64_t seed, uint64_t a, uint64_t b) {
  return std::sqrt(-2 * std::log(1 - Uniform(seed, a, b))) * std::cos(6.283185307179586 * Uniform(seed + 1, a, b));
}

struct Script {
  std::string name;
  int num_requests = 1;
  int nodes = 4;                                                   // chain that is proposed
  double claimed = 0.9;                                            // of each node
  std::function<double(int64_t request, int64_t token)> accepted;  // of each node
  double draft_secs = 0.05;                                        // a proposal
  double row_secs = 0.1;                                           // each row beyond one a request
  double dearer = 1;                                               // what a verify truly takes over what Prepare saw
  double noise = 0;                                                // relative
  int64_t request_tokens = 1 << 30;
  double context_secs = 0;         // a plain step more, per 4096 tokens of context
  int64_t hiccup_at = -1;          // this plain step takes 40 more
  bool forget_draft_time = false;  // planted: the clock stands still while a drafter works
  GovernorOptions options;
};

struct Outcome {
  double spent = 0, plain = 0;
  double worst_stretch = 0;  // most that a stretch lost beyond epsilon
  double overrun = 0;        // largest, of one round
  double dearest_plain = 0;  // a plain step without its noise
  int64_t rounds = 0, tokens = 0;
  double excess() const { return spent - 1.005 * plain; }
};

class Machine {
 public:
  explicit Machine(Script script) : s_(std::move(script)), governor_(&seen_, s_.options) {
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48}) {
      for (int i = 0; i < (rows == 1 ? 8 : 1); ++i)
        governor_.AddPrepared(rows, (1 + s_.row_secs * (rows - 1)) * Noise(9, rows * 8 + i));
    }
    governor_.AddDrafter("scripted");
    StartRequests();
  }

  Outcome Run() {
    double lowest = 0;
    for (int round = 0; round < kRounds; ++round) {
      Round(round);
      const double loss = o_.excess();
      o_.worst_stretch = std::max(o_.worst_stretch, loss - lowest);
      lowest = std::min(lowest, loss);
    }
    return o_;
  }
  const Governor& governor() const { return governor_; }

 private:
  double Noise(uint64_t kind, int64_t at) const {
    return s_.noise == 0 ? 1 : std::max(0.2, 1 + s_.noise * Gauss(kind, static_cast<uint64_t>(at), 0));
  }
  int64_t ContextAt(int64_t step) const { return step % s_.request_tokens; }
  double PlainBase(int64_t step) const {
    return (1 + s_.row_secs * (s_.num_requests - 1)) + s_.context_secs * double(ContextAt(step)) / 4096;
  }
  double PlainSecs(int64_t step) const { return PlainBase(step) * Noise(1, step) + (step == s_.hiccup_at ? 40 : 0); }
  void StartRequests() {
    for (int i = 0; i < s_.num_requests; ++i) governor_.StartRequest(request_ * 64 + i);
  }
  void Spend(double secs, bool seen = true) {
    o_.spent += secs;
    if (seen) seen_.Advance(secs);
  }

  void Round(int round) {
    const int n = s_.num_requests;
    const auto step = static_cast<int64_t>(position_);
    std::vector<RoundRequest> requests;
    for (int i = 0; i < n; ++i) requests.push_back({request_ * 64 + i, ContextAt(step), s_.nodes});
    governor_.BeginRound(requests);
    for (int i = 0; i < n; ++i) {
      for (int d; (d = governor_.NextDrafter(i)) >= 0;) {
        Spend(s_.draft_secs, !s_.forget_draft_time);
        step::DraftTree tree;
        tree.Reset(0);
        std::vector<float> reach = {1.0f};
        for (int k = 0; k < s_.nodes; ++k) {
          tree.Add(k, k);
          reach.push_back(reach.back() * static_cast<float>(s_.claimed));
        }
        governor_.Offer(i, d, tree, reach);
      }
    }
    const auto decisions = governor_.Decide();
    int rows = n;
    std::vector<std::vector<int32_t>> paths(static_cast<size_t>(n));
    std::vector<RequestOutcome> outcomes(static_cast<size_t>(n));
    int64_t tokens = 0;
    for (int i = 0; i < n; ++i) {
      const auto& chosen = decisions[static_cast<size_t>(i)].rows;
      rows += static_cast<int>(chosen.size());
      auto& path = paths[static_cast<size_t>(i)];
      const double chance = s_.accepted(request_, step);
      while (path.size() < chosen.size() && Uniform(3, static_cast<uint64_t>(round * 64 + i), path.size()) < chance)
        path.push_back(chosen[path.size()]);
      outcomes[static_cast<size_t>(i)] = {static_cast<int64_t>(path.size()) + 1, path};
      tokens += outcomes[static_cast<size_t>(i)].num_tokens;
    }
    const double until = position_ + double(tokens) / n;
    if (rows == n) {
      const double part = position_ - double(step);  // a step between two virtual ones is as much of each
      Spend((1 - part) * PlainSecs(step) + part * PlainSecs(step + 1));
    } else {
      ++o_.rounds;
      double secs = (PlainBase(step) + s_.row_secs * (rows - n)) * s_.dearer * Noise(2, round);
      if (double(s_.hiccup_at) >= position_ && double(s_.hiccup_at) < until) secs += 40;
      Spend(secs);
      const double all = secs + governor_.last_draft_secs();
      const double worst = governor_.last_worst_secs();
      o_.overrun = std::max(o_.overrun, std::min(all, 3 * worst) - worst);
    }
    governor_.EndRound(outcomes);
    // What plain decoding takes for the same tokens: whole virtual steps, and a part of the last.
    while (position_ < until) {
      const double whole = std::floor(position_) + 1, end = std::min(until, whole);
      o_.plain += (end - position_) * PlainSecs(static_cast<int64_t>(position_));
      o_.dearest_plain = std::max(o_.dearest_plain, PlainBase(static_cast<int64_t>(position_)));
      position_ = end;
    }
    o_.tokens += tokens;
    if (static_cast<int64_t>(position_) / s_.request_tokens != request_) {
      for (int i = 0; i < n; ++i) governor_.EndRequest(request_ * 64 + i);
      request_ = static_cast<int64_t>(position_) / s_.request_tokens;
      StartRequests();
    }
  }

  Script s_;
  ScriptedClock seen_;
  Governor governor_;
  Outcome o_;
  double position_ = 0;  // virtual plain steps behind us
  int64_t request_ = 0;
};

double TotalAllowed(const Outcome& o) {
  return 4 * o.dearest_plain + o.overrun;
}
double StretchAllowed(const Outcome& o) {
  return 32 * o.dearest_plain + o.overrun;
}

std::vector<Script> Scripts() {
  const auto always = [](double chance) { return [chance](int64_t, int64_t) { return chance; }; };
  std::vector<Script> all;
  auto add = [&all](const char* name, std::function<double(int64_t, int64_t)> accepted) -> Script& {
    all.emplace_back();
    all.back().name = name;
    all.back().accepted = std::move(accepted);
    return all.back();
  };
  add("always wrong, sure of itself", always(0)).claimed = 0.99;
  add("collapses half-way", [](int64_t, int64_t token) { return token < 120000 ? 0.8 : 0.0; });
  add("verify 3 x dearer than Prepare saw", always(0.6)).dearer = 3;
  add("noisy clock", always(0.3)).noise = 0.1;
  Script& breaks_even = add("noisy clock, a drafter that breaks even", always(0.16));
  breaks_even.noise = 0.1;
  Script& growth = add("context growth", always(0.3));
  growth.context_secs = 1.5;
  growth.request_tokens = 4000;
  Script& bursts = add("bursts of 20 tokens", always(0.1));
  bursts.request_tokens = 20;
  Script& moody = add("good for one request, bad for the next",
                      [](int64_t request, int64_t) { return request % 2 == 0 ? 0.7 : 0.02; });
  moody.request_tokens = 300;
  Script& hiccup = add("one hiccup of 40 steps", always(0.65));
  hiccup.hiccup_at = 5000;
  Script& early = add("one hiccup of 40 steps in a bad drafter's first rounds", always(0.05));
  early.hiccup_at = 1;
  Script& eight = add("8 requests a step", always(0.2));
  eight.num_requests = 8;
  eight.noise = 0.1;
  eight.draft_secs = 0.02;
  Script& dear = add("drafting costs half a step", always(0.5));
  dear.draft_secs = 0.5;
  return all;
}

TEST(NeverLose, WhateverTheDrafterDoes) {
  for (bool learns : {true, false}) {
    for (Script s : Scripts()) {
      s.options.learns = learns;
      SCOPED_TRACE(s.name + (learns ? "" : ", all claims believed: the ledger alone"));
      Machine machine(s);
      const Outcome o = machine.Run();
      EXPECT_LE(o.excess(), TotalAllowed(o));
      EXPECT_LE(o.worst_stretch, StretchAllowed(o));
      EXPECT_GE(o.rounds, 3);  // it was tried at all
      std::printf("%-55s %s: %6ld rounds, %7ld tokens, %.4f x plain, excess %.1f, stretch %.1f, overrun %.2f\n",
                  s.name.c_str(), learns ? "governed" : "trusting", long(o.rounds), long(o.tokens), o.spent / o.plain,
                  o.excess(), o.worst_stretch, o.overrun);
    }
  }
}

// 2.4 tokens in rounds of 1.66 steps.
Script Good() {
  Script s;
  s.name = "good";
  s.accepted = [](int64_t, int64_t) { return 0.6213; };
  s.claimed = 0.6213;
  s.draft_secs = 0.26;
  return s;
}

TEST(NeverLose, AGoodDrafterIsNotStarved) {
  for (double noise : {0.0, 0.1}) {
    for (bool learns : {true, false}) {
      Script s = Good();
      s.noise = noise;
      s.options.learns = learns;
      const Outcome o = Machine(s).Run();
      EXPECT_GE(o.plain / o.spent, 0.98 * 2.4 / 1.66) << noise << learns;
    }
  }
}

// A drafter whose rows pay, but whose time does not: a ledger that forgets it loses.
TEST(NeverLose, ALedgerThatForgetsDraftTimeIsCaught) {
  Script s = Good();
  s.accepted = [](int64_t, int64_t) { return 0.5; };
  s.claimed = 0.5;
  s.draft_secs = 0.9;
  EXPECT_LE(Machine(s).Run().excess(), TotalAllowed(Machine(s).Run()));
  s.forget_draft_time = true;
  const Outcome o = Machine(s).Run();
  EXPECT_GT(o.excess(), TotalAllowed(o));
}

// Credit without an end pays for a collapse without an end.
TEST(NeverLose, ALedgerWithoutACapIsCaught) {
  for (bool capped : {true, false}) {
    Script s = Good();
    s.accepted = [](int64_t, int64_t token) { return token < 100000 ? 0.8 : 0.0; };
    s.options.learns = false;
    if (!capped) s.options.ledger.cap_steps = 1e9;
    const Outcome o = Machine(s).Run();
    EXPECT_EQ(o.worst_stretch <= StretchAllowed(o), capped);
    EXPECT_LE(o.excess(), TotalAllowed(o));
  }
}

// A first balance without need.
TEST(NeverLose, ALedgerThatStartsTooRichIsCaught) {
  for (double start : {4.0, 200.0}) {
    Script s = Good();
    s.accepted = [](int64_t, int64_t) { return 0.0; };
    s.options.learns = false;
    s.options.ledger.start_steps = start;
    s.options.ledger.cap_steps = 1e9;
    const Outcome o = Machine(s).Run();
    EXPECT_EQ(o.excess() <= TotalAllowed(o), start == 4.0);
  }
}

}  // namespace
}  // namespace lockstep::spec
