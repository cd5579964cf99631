#include "spec/bench_proposers.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace lockstep::spec {
namespace {

constexpr int kVocab = 50;

std::vector<int32_t> Text(int num_tokens, int vocab) {
  std::mt19937 rng(3);
  std::vector<int32_t> text(num_tokens);
  for (int32_t& t : text) t = rng() % vocab;
  return text;
}

// Generates `text` after its first 10 tokens with this proposer; returns rounds, checks each tree.
int Rounds(Proposer& proposer, const std::vector<int32_t>& text, int vocab, DraftBudget budget, int* num_drafted) {
  size_t committed = 10;
  int rounds = 0;
  *num_drafted = 0;
  proposer.Reset(std::span(text).first(committed));
  while (committed < text.size()) {
    step::DraftTree tree;
    std::vector<float> probability;
    ProposeContext context;
    context.tokens = std::span(text).first(committed);
    context.position = static_cast<int64_t>(committed) - 1;
    context.budget = budget;
    proposer.Propose(context, &tree, &probability);
    EXPECT_TRUE(step::ValidateTree(tree, vocab).ok());
    EXPECT_LE(tree.num_nodes, budget.max_nodes);
    EXPECT_EQ(probability.size(), static_cast<size_t>(tree.num_rows()));
    EXPECT_TRUE(budget.shape == ShapeLimit::kTree || tree.IsChain());
    // The target follows the text on the right path; off it, its tokens do not matter.
    std::vector<int32_t> sampled(tree.num_rows());
    for (int row = 0; row < tree.num_rows(); ++row) {
      const size_t place = committed + tree.Depth(row);
      sampled[row] = place < text.size() ? text[place] : 0;
    }
    *num_drafted += tree.num_nodes;
    step::WalkResult walk = step::Walk(tree, sampled);
    const size_t take = std::min<size_t>(walk.num_emitted, text.size() - committed);
    for (size_t i = 0; i < take; ++i) EXPECT_EQ(walk.tokens[i], text[committed + i]);
    proposer.Observe(std::span(text).subspan(committed, take));
    committed += take;
    ++rounds;
  }
  return rounds;
}

TEST(BenchProposers, OracleIsAlwaysRight) {
  const std::vector<int32_t> text = Text(10 + 120, kVocab);
  OracleProposer oracle(kVocab);
  oracle.SetTruth(text);
  int drafted;
  EXPECT_EQ(Rounds(oracle, text, kVocab, {5, ShapeLimit::kChain}, &drafted), 20);
  EXPECT_EQ(Rounds(oracle, text, kVocab, {7, ShapeLimit::kTree}, &drafted),
            24);  // 4 right, 3 wrong
  EXPECT_EQ(Rounds(oracle, text, kVocab, {255, ShapeLimit::kChain}, &drafted), 1);
  EXPECT_EQ(Rounds(oracle, text, kVocab, {0, ShapeLimit::kTree}, &drafted), 120);
  EXPECT_EQ(drafted, 0);
  // The path of a tree is scattered, so its kv must be compacted.
  step::DraftTree tree;
  std::vector<float> probability;
  ProposeContext context;
  context.tokens = std::span(text).first(10);
  context.budget = {7, ShapeLimit::kTree};
  oracle.Propose(context, &tree, &probability);
  EXPECT_EQ(tree.FindChild(0, text[10]), 2);
}

TEST(BenchProposers, WrongIsNeverRight) {
  for (int vocab : {2, 3, 50}) {
    const std::vector<int32_t> text = Text(10 + 60, vocab);
    WrongProposer wrong(vocab);
    wrong.SetTruth(text);
    for (ShapeLimit shape : {ShapeLimit::kChain, ShapeLimit::kTree})
      for (int max_nodes : {1, 2, 7, 16}) {
        int drafted;
        EXPECT_EQ(Rounds(wrong, text, vocab, {max_nodes, shape}, &drafted), 60);
        EXPECT_GT(drafted, 50);
      }
  }
  WrongProposer nothing(1);  // a vocabulary of one has no wrong token
  const std::vector<int32_t> ones(20, 0);
  nothing.SetTruth(ones);
  int drafted;
  Rounds(nothing, ones, 1, {4, ShapeLimit::kChain}, &drafted);
  EXPECT_EQ(drafted, 0);
}

TEST(BenchProposers, RandomIsAFunctionOfSeedAndPosition) {
  const std::vector<int32_t> text = Text(10 + 200, 3);
  std::set<std::vector<int32_t>> seen;
  for (uint64_t seed : {1ull, 1ull, 2ull}) {
    RandomProposer random(3, seed);
    step::DraftTree tree;
    std::vector<float> probability;
    ProposeContext context;
    context.tokens = text;
    context.position = 77;
    context.budget = {40, ShapeLimit::kTree};
    random.Propose(context, &tree, &probability);
    EXPECT_EQ(tree.num_nodes, 40);
    seen.insert({tree.tokens + 1, tree.tokens + tree.num_rows()});
  }
  EXPECT_EQ(seen.size(), 2u);
  RandomProposer random(3, 9);
  for (ShapeLimit shape : {ShapeLimit::kChain, ShapeLimit::kTree}) {
    int drafted;
    const int rounds = Rounds(random, text, 3, {4, shape}, &drafted);
    EXPECT_LT(rounds, 190);  // right one time in three
    EXPECT_GT(rounds, 80);
    EXPECT_EQ(drafted, 4 * rounds);
  }
}

}  // namespace
}  // namespace lockstep::spec
