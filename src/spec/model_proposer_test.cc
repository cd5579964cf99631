// A draft model's proposals are what the model itself would say: over window, cache, noise and positions.
#include "spec/model_proposer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "step/noise.h"
#include "step/test_util.h"

namespace lockstep::spec {
namespace {

using step::testing::Session;
using step::testing::SomeTokens;
using step::testing::TinyModel;

const char kTiny[] = "seed=6, heads=9, kv_heads=3, head_dim=32, hidden=96, tied=False, dtype='Q4_1', context=1024";
constexpr int kVocab = 320;

// Every reading takes a second; the tests' scripts are about what is proposed.
class SteppingClock : public Clock {
 public:
  double Now() const override { return now_ += 1; }

 private:
  mutable double now_ = 0;
};

struct Sampling {
  uint64_t seed = 0;
  float temperature = 0;
};

// A draft on a runner of its own, and the same model as a plain target that says what the draft should.
class Bench {
 public:
  explicit Bench(int tp = 1, int threads = 1, int context = 1024, const char* draft_fields = kTiny)
      : reference_(TinyModel(kTiny)) {
    step::StepOptions options;
    options.tp = tp;
    options.threads = threads;
    step::DraftOptions draft;
    draft.source = std::shared_ptr<const model::WeightSource>(model::OpenGgufWeights(TinyModel(draft_fields)).value());
    draft.context = context;
    options.drafts.push_back(draft);
    session_ = std::make_unique<Session>(TinyModel(kTiny), options);
    Fresh();
  }

  void Fresh() {
    proposer_ = std::make_unique<ModelProposer>(&session_->runner(), 0, 0, &clock_);
    proposer_->Reset({});
  }

  step::DraftTree Propose(std::span<const int32_t> tokens, const DraftBudget& budget, const Sampling& sampling = {}) {
    ProposeContext context;
    context.tokens = tokens;
    context.position = int64_t(tokens.size()) - 1;
    context.budget = budget;
    context.seed = sampling.seed;
    context.temperature = sampling.temperature;
    step::DraftTree tree;
    proposer_->Propose(context, &tree, &probability);
    return tree;
  }

  std::vector<int32_t> Chain(std::span<const int32_t> tokens, int length, const Sampling& sampling = {}) {
    const step::DraftTree tree = Propose(tokens, {length, ShapeLimit::kChain}, sampling);
    for (int row = 1; row < tree.num_rows(); ++row) EXPECT_EQ(tree.parents[row], row - 1);
    return {tree.tokens + 1, tree.tokens + tree.num_rows()};
  }

  // The logits after the text from `window` on, by a plain step that knows of no draft.
  std::vector<float> Logits(std::span<const int32_t> tokens, size_t window) {
    return reference_.Feed(0, tokens.subspan(window), 0, 64).back();
  }

  // What a chain should be for a draft that sees the text from `window` on.
  std::vector<int32_t> Expected(std::vector<int32_t> tokens, size_t window, int length, const Sampling& sampling = {}) {
    std::vector<int32_t> chain;
    for (int i = 0; i < length; ++i) {
      const std::vector<float> logits = Logits(tokens, window);
      int32_t best = -1;
      float best_value = 0;
      for (int32_t token = 0; token < kVocab; ++token) {
        float value = logits[size_t(token)];
        if (sampling.temperature > 0) {
          value = value * (1.0f / sampling.temperature) +
                  step::Gumbel(sampling.seed, static_cast<int64_t>(tokens.size()), token);
        }
        if (best < 0 || value > best_value) {
          best = token;
          best_value = value;
        }
      }
      chain.push_back(best);
      tokens.push_back(best);
    }
    return chain;
  }

  std::vector<float> probability;

 private:
  Session reference_;
  std::unique_ptr<Session> session_;
  SteppingClock clock_;
  std::unique_ptr<ModelProposer> proposer_;
};

std::vector<int32_t> Prefix(const std::vector<int32_t>& tokens, size_t length) {
  return {tokens.begin(), tokens.begin() + std::ptrdiff_t(length)};
}

const Sampling kSamplings[] = {{}, {7, 0.8f}, {123456789012345ull, 1.3f}};

// A text grows round by round, sometimes by what was proposed, sometimes by something else: what the cache holds of the
// guesses must never be read as text.
TEST(ModelProposer, AChainIsWhatTheModelSays) {
  const std::vector<int32_t> script = SomeTokens(200, 300, 3);
  for (int tp : {1, 2}) {
    for (int threads : {1, 2}) {
      Bench bench(tp, threads);
      for (const Sampling& sampling : kSamplings) {
        bench.Fresh();
        std::vector<int32_t> text = Prefix(script, 20);
        for (int round = 0; round < 16; ++round) {
          const int length = 1 + round % 7;
          const std::vector<int32_t> chain = bench.Chain(text, length, sampling);
          ASSERT_EQ(chain, bench.Expected(text, 0, length, sampling))
              << "tp " << tp << " threads " << threads << " T " << sampling.temperature << " round " << round;
          const size_t taken = size_t(round) % (chain.size() + 1);
          text.insert(text.end(), chain.begin(), chain.begin() + std::ptrdiff_t(taken));
          text.push_back(script[size_t(100 + round)]);
        }
      }
    }
  }
}

TEST(ModelProposer, TheWindowOpensWithTheLastTokens) {
  Bench bench;
  const std::vector<int32_t> text = SomeTokens(400, 300, 4);
  for (const Sampling& sampling : kSamplings) {
    constexpr size_t kEdge = kDraftWindow;
    for (size_t length : {size_t(1), size_t(2), size_t(32), kEdge - 1, kEdge, kEdge + 1, kEdge + 2, size_t(400)}) {
      bench.Fresh();
      const size_t window = length > size_t(kDraftWindow) ? length - size_t(kDraftWindow) : 0;
      ASSERT_EQ(bench.Chain(Prefix(text, length), 4, sampling),
                bench.Expected(Prefix(text, length), window, 4, sampling))
          << length << " tokens, T " << sampling.temperature;
    }
  }
}

// Not run for a while: up to 64 tokens are read, beyond them a new window opens.
TEST(ModelProposer, CatchesUpAfterAStretchWithoutDrafting) {
  Bench bench;
  const std::vector<int32_t> text = SomeTokens(400, 300, 8);
  for (const Sampling& sampling : kSamplings) {
    for (size_t gap : {1u, 2u, 63u, 64u, 65u, 66u, 100u, 200u}) {
      bench.Fresh();
      bench.Chain(Prefix(text, 100), 5, sampling);
      size_t at = 100 + gap;
      const size_t window = gap > size_t(kDraftCatchUp) ? at - size_t(kDraftCatchUp) : 0;
      ASSERT_EQ(bench.Chain(Prefix(text, at), 5, sampling), bench.Expected(Prefix(text, at), window, 5, sampling))
          << "gap " << gap << " T " << sampling.temperature;
      // And goes on from there.
      at += 3;
      ASSERT_EQ(bench.Chain(Prefix(text, at), 5, sampling), bench.Expected(Prefix(text, at), window, 5, sampling))
          << "after a gap of " << gap;
    }
  }
}

// The draft's own context is shorter than the text: the window slides on, and every proposal is what the model says of
// some window that ends here.
TEST(ModelProposer, SlidesWhereItsContextEnds) {
  const std::vector<int32_t> text = SomeTokens(300, 300, 11);
  for (int context : {1, 2, 3, 4, 8, 33, 96, 128, 200}) {
    Bench bench(1, 1, context);
    for (size_t length = 1; length < text.size(); length += length < 20 ? 1 : 7) {
      const std::vector<int32_t> chain = bench.Chain(Prefix(text, length), 2, kSamplings[1]);
      ASSERT_GE(chain.size(), 1u) << context << " " << length;
      if (length % 5 != 0) continue;
      bool found = false;
      const size_t oldest = length > size_t(context) ? length - size_t(context) : 0;
      for (size_t window = oldest; window < length && !found; ++window)
        found = chain == bench.Expected(Prefix(text, length), window, int(chain.size()), kSamplings[1]);
      EXPECT_TRUE(found) << "context " << context << ", " << length << " tokens";
    }
  }
}

// A catch-up is longer than this draft's context: nothing beyond its rotary table may be read (the address sanitizer
// looks), and the window still ends here.
TEST(ModelProposer, AStretchLongerThanItsContext) {
  const std::vector<int32_t> text = SomeTokens(300, 300, 12);
  for (int context : {16, 32, 48}) {
    Bench bench(1, 1, context);
    bench.Chain(Prefix(text, 40), 3);
    const std::vector<int32_t> later = Prefix(text, 240);
    const std::vector<int32_t> chain = bench.Chain(later, 3);
    bool found = false;
    for (size_t window = later.size() - size_t(context); window < later.size() && !found; ++window)
      found = chain == bench.Expected(later, window, 3);
    EXPECT_TRUE(found) << "context " << context;
  }
}

TEST(ModelProposer, AnotherTextIsReadAnew) {
  Bench bench;
  const std::vector<int32_t> one = SomeTokens(90, 300, 1), two = SomeTokens(90, 300, 2);
  bench.Chain(one, 4);
  EXPECT_EQ(bench.Chain(two, 4), bench.Expected(two, 0, 4));
  EXPECT_EQ(bench.Chain(Prefix(two, 50), 4), bench.Expected(Prefix(two, 50), 0, 4));
}

// An id of the target's padding, for which the draft has no row, is read as another one and not from behind its table.
TEST(ModelProposer, PaddingThatTheDraftHasNoRowFor) {
  Bench bench(1, 1, 1024, "seed=9, tied=False, vocab=288, context=1024");
  std::vector<int32_t> text = SomeTokens(40, 280, 3);
  for (size_t at : {size_t(5), text.size() - 1}) {
    std::vector<int32_t> padded = text;
    padded[at] = 319;
    text[at] = 0;
    bench.Fresh();
    const step::DraftTree tree = bench.Propose(padded, {20, ShapeLimit::kTree});
    const std::vector<float> probability = bench.probability;
    bench.Fresh();
    const step::DraftTree expected = bench.Propose(text, {20, ShapeLimit::kTree});
    ASSERT_EQ(tree.num_nodes, expected.num_nodes);
    EXPECT_TRUE(std::equal(tree.tokens + 1, tree.tokens + tree.num_rows(), expected.tokens + 1));
    EXPECT_EQ(probability, bench.probability);
  }
}

// Every node is on the model's list at its place, with the probability that the model gives it there.
TEST(ModelProposer, ATreeIsWhatTheModelSaysAlongEveryPath) {
  Bench bench;
  const std::vector<int32_t> text = SomeTokens(60, 300, 21);
  const step::DraftTree tree = bench.Propose(text, {24, ShapeLimit::kTree});
  ASSERT_EQ(tree.num_nodes, 24);
  int deep = 0;
  for (int row = 1; row < tree.num_rows(); ++row) {
    std::vector<int32_t> path;
    for (int at = tree.parents[row]; at > 0; at = tree.parents[at]) path.insert(path.begin(), tree.tokens[at]);
    deep += path.size() >= 2;
    std::vector<int32_t> before = text;
    before.insert(before.end(), path.begin(), path.end());
    const std::vector<float> logits = bench.Logits(before, 0);
    const float top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (float v : logits) sum += std::exp(double(v - top));
    const int32_t token = tree.tokens[row];
    const double share = std::exp(double(logits[size_t(token)] - top)) / sum;
    const size_t parent = size_t(tree.parents[row]);
    EXPECT_NEAR(bench.probability[size_t(row)], bench.probability[parent] * share, 1e-4) << "row " << row;
    int better = 0;
    for (int32_t other = 0; other < kVocab; ++other)
      better += logits[size_t(other)] > logits[size_t(token)] ||
                (logits[size_t(other)] == logits[size_t(token)] && other < token);
    EXPECT_LT(better, step::kDraftTopK);
  }
  EXPECT_GT(deep, 0);
}

TEST(ModelProposer, TreesAreClosedBestFirstAndWithinTheBudget) {
  Bench bench;
  int trees = 0, full = 0, cut = 0;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const std::vector<int32_t> text = SomeTokens(30 + int(seed), 300, seed);
    for (const Sampling& sampling : kSamplings) {
      for (int nodes : {1, 2, 3, 7, 8, 15, 31, step::kMaxTreeNodes}) {
        for (float min_reach : {0.0f, 0.01f, 0.1f, 0.4f}) {
          for (ShapeLimit shape : {ShapeLimit::kTree, ShapeLimit::kChain}) {
            const step::DraftTree tree = bench.Propose(text, {nodes, shape, min_reach}, sampling);
            ASSERT_TRUE(step::ValidateTree(tree, kVocab).ok());
            ASSERT_EQ(tree.tokens[0], text.back());
            ASSERT_LE(tree.num_nodes, nodes);
            ASSERT_EQ(bench.probability.size(), size_t(tree.num_rows()));
            ASSERT_EQ(bench.probability[0], 1.0f);
            std::set<std::pair<int, int>> children;
            for (int row = 1; row < tree.num_rows(); ++row) {
              const float reach = bench.probability[size_t(row)];
              ASSERT_GE(tree.parents[row], 0);
              ASSERT_LT(tree.parents[row], row);  // closed under parents
              ASSERT_LE(reach, bench.probability[size_t(tree.parents[row])]);
              ASSERT_GE(reach, min_reach);
              ASSERT_TRUE(children.insert({tree.parents[row], tree.tokens[row]}).second);  // no child twice
              if (shape == ShapeLimit::kChain) {
                ASSERT_EQ(tree.parents[row], row - 1);
              }
              ASSERT_LE(reach, bench.probability[size_t(row - 1)]);  // best first
            }
            ++trees;
            full += tree.num_nodes == nodes;
            cut += tree.num_nodes < nodes && min_reach > 0;
          }
        }
      }
    }
  }
  EXPECT_GT(full, trees / 10);
  EXPECT_GT(cut, trees / 10);
}

// Proposals do not depend on ranks and threads, and drafting twice from one text gives the same.
TEST(ModelProposer, RanksAndThreadsChangeNothing) {
  std::vector<std::pair<step::DraftTree, std::vector<float>>> first;
  for (const auto& [tp, threads] : std::vector<std::pair<int, int>>{{1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 1}}) {
    Bench bench(tp, threads);
    size_t at = 0;
    for (const Sampling& sampling : kSamplings) {
      for (int round = 0; round < 2; ++round) {
        bench.Fresh();
        const step::DraftTree tree = bench.Propose(SomeTokens(70, 300, 31), {20, ShapeLimit::kTree}, sampling);
        if (tp * threads == 1 && round == 0) {
          first.emplace_back(tree, bench.probability);
          continue;
        }
        const auto& [other, probability] = first[tp * threads == 1 ? first.size() - 1 : at];
        ASSERT_EQ(tree.num_nodes, other.num_nodes);
        for (int row = 0; row < tree.num_rows(); ++row) {
          EXPECT_EQ(tree.tokens[row], other.tokens[row]);
          EXPECT_EQ(tree.parents[row], other.parents[row]);
        }
      }
      ++at;
    }
  }
}

}  // namespace
}  // namespace lockstep::spec
