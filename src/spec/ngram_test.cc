#include "spec/ngram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep::spec {
namespace {

using Ints = std::vector<int32_t>;

struct Proposal {
  step::DraftTree tree;
  std::vector<float> probability;
  Ints tokens() const { return {tree.tokens + 1, tree.tokens + tree.num_rows()}; }
  Ints parents() const { return {tree.parents + 1, tree.parents + tree.num_rows()}; }
};

Proposal Ask(NgramProposer& proposer, const Ints& tokens, int max_nodes, ShapeLimit shape) {
  Proposal p;
  ProposeContext context;
  context.tokens = tokens;
  context.position = static_cast<int64_t>(tokens.size()) - 1;
  context.budget = {max_nodes, shape};
  proposer.Propose(context, &p.tree, &p.probability);
  EXPECT_LE(p.tree.num_nodes, max_nodes);
  EXPECT_EQ(p.tree.tokens[0], tokens.back());
  EXPECT_EQ(p.probability.size(), static_cast<size_t>(p.tree.num_rows()));
  EXPECT_EQ(p.probability[0], 1.0f);
  for (int row = 1; row < p.tree.num_rows(); ++row) {
    EXPECT_LT(p.probability[row], p.probability[p.tree.parents[row]]);
    EXPECT_GE(p.probability[row], kMinReach);
    // No sibling twice.
    EXPECT_EQ(p.tree.FindChild(p.tree.parents[row], p.tree.tokens[row]), row);
  }
  EXPECT_TRUE(shape == ShapeLimit::kTree || p.tree.IsChain());
  return p;
}

TEST(Ngram, AMatchIsContinuedAndAMissCostsNoRow) {
  NgramProposer proposer(100);
  proposer.Reset(Ints{1, 2, 3, 4, 5, 6, 1, 2});
  EXPECT_EQ(Ask(proposer, {1, 2, 3, 4, 5, 6, 1, 2}, 3, ShapeLimit::kChain).tokens(), (Ints{3, 4, 5}));
  proposer.Reset(Ints{1, 2, 3, 4, 5, 6, 2, 1});
  EXPECT_EQ(Ask(proposer, {1, 2, 3, 4, 5, 6, 2, 1}, 8, ShapeLimit::kTree).tree.num_nodes, 0);
  // One token alone is no match, nor is an empty budget a proposal.
  EXPECT_EQ(Ask(proposer, {7}, 8, ShapeLimit::kTree).tree.num_nodes, 0);
  EXPECT_EQ(Ask(proposer, {1, 2, 1, 2}, 0, ShapeLimit::kTree).tree.num_nodes, 0);
}

TEST(Ngram, APeriodicTextIsContinuedPastItsEnd) {
  NgramProposer proposer(100);
  EXPECT_EQ(Ask(proposer, {1, 2, 3, 1, 2, 3, 1, 2, 3}, 7, ShapeLimit::kChain).tokens(), (Ints{1, 2, 3, 1, 2, 3, 1}));
  EXPECT_EQ(Ask(proposer, {9, 9, 9, 9}, 5, ShapeLimit::kChain).tokens(), (Ints{9, 9, 9, 9, 9}));
}

TEST(Ngram, TheLongerMatchWinsOverTheMoreRecent) {
  // "5 1 2" was followed by 7, later "1 2" by 8; the text ends in "5 1 2".
  NgramProposer proposer(100);
  const Ints text = {5, 1, 2, 7, 30, 1, 2, 8, 31, 5, 1, 2};
  Proposal chain = Ask(proposer, text, 1, ShapeLimit::kChain);
  EXPECT_EQ(chain.tokens(), Ints{7});
  // As a tree both branches come, the likelier first: 3 / (3 + 2 + 1) and 2 / 6.
  Proposal tree = Ask(proposer, text, 2, ShapeLimit::kTree);
  EXPECT_EQ(tree.tokens()[0], 7);
  EXPECT_FLOAT_EQ(tree.probability[1], 0.5f);
  EXPECT_EQ(Ask(proposer, text, 8, ShapeLimit::kTree).tree.FindChild(0, 8) > 0, true);
}

TEST(Ngram, EqualMatchesTheMoreFrequentThenTheMoreRecent) {
  NgramProposer proposer(100);
  const Ints frequent = {1, 2, 8, 40, 1, 2, 8, 41, 1, 2, 7, 42, 1, 2};
  EXPECT_EQ(Ask(proposer, frequent, 1, ShapeLimit::kChain).tokens(), Ints{8});
  const Ints recent = {1, 2, 8, 40, 1, 2, 7, 42, 1, 2};
  EXPECT_EQ(Ask(proposer, recent, 1, ShapeLimit::kChain).tokens(), Ints{7});
}

TEST(Ngram, ObserveAndCatchUpAndRollbackGiveWhatAFreshIndexGives) {
  std::mt19937 rng(6);
  for (int trial = 0; trial < 300; ++trial) {
    NgramProposer followed(8), lazy(8);
    Ints text(1 + rng() % 20);
    for (int32_t& t : text) t = rng() % 8;
    followed.Reset(text);
    lazy.Reset(text);
    for (int round = 0; round < 12; ++round) {
      Ints fresh_tokens(1 + rng() % 6);
      for (int32_t& t : fresh_tokens) t = rng() % (1 + rng() % 8);
      text.insert(text.end(), fresh_tokens.begin(), fresh_tokens.end());
      followed.Observe(fresh_tokens);
      const ShapeLimit shape = round % 2 ? ShapeLimit::kChain : ShapeLimit::kTree;
      NgramProposer fresh(8);
      const Proposal expected = Ask(fresh, text, 10, shape);
      const Proposal a = Ask(followed, text, 10, shape);
      ASSERT_EQ(a.tokens(), expected.tokens());
      ASSERT_EQ(a.parents(), expected.parents());
      ASSERT_EQ(a.probability, expected.probability);
      if (round % 4 == 3) {  // saw nothing for a while
        ASSERT_EQ(Ask(lazy, text, 10, shape).tokens(), expected.tokens());
        // A rollback: the text is now shorter and goes on otherwise.
        text.resize(text.size() - std::min<size_t>(text.size() - 1, 3));
        text.back() = (text.back() + 1) % 8;
        followed.Reset(text);
      }
    }
  }
}

// The place of the longest match, by looking at every place.
int SlowLongest(const Ints& text) {
  const int last = static_cast<int>(text.size()) - 1;
  int longest = 0;
  for (int end = 0; end < last; ++end) {
    int match = 0;
    while (match <= end && match < kMaxMatch && text[end - match] == text[last - match]) ++match;
    longest = std::max(longest, match);
  }
  return longest;
}

TEST(Ngram, AProposalComesExactlyWhenAPlaceMatches) {
  std::mt19937 rng(1);
  int num_hits = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const int alphabet = 2 + rng() % 40;
    Ints text(2 + rng() % 60);
    for (int32_t& t : text) t = rng() % alphabet;
    NgramProposer proposer(alphabet);
    const Proposal p = Ask(proposer, text, 1, ShapeLimit::kChain);
    ASSERT_EQ(p.tree.num_nodes == 1, SlowLongest(text) >= 2);
    if (p.tree.num_nodes == 0) continue;
    ++num_hits;
    // Each proposed token followed the last two somewhere.
    const size_t n = text.size();
    bool found = false;
    for (size_t i = 0; i + 2 < n; ++i)
      found |= text[i] == text[n - 2] && text[i + 1] == text[n - 1] && text[i + 2] == p.tokens()[0];
    ASSERT_TRUE(found);
  }
  EXPECT_GT(num_hits, 500);
}

TEST(Ngram, NoIdOutsideTheVocabularyIsProposed) {
  NgramProposer proposer(10);
  EXPECT_EQ(Ask(proposer, {1, 2, 3, 77, 4, 1, 2}, 5, ShapeLimit::kChain).tokens(), Ints{3});
  EXPECT_EQ(Ask(proposer, {1, 2, -5, 3, 4, 1, 2}, 5, ShapeLimit::kTree).tree.num_nodes, 0);
}

TEST(Ngram, ALongTextOfOneTokenStaysCheap) {
  NgramProposer proposer(10);
  const Ints text(200000, 3);
  proposer.Reset(text);
  for (int i = 0; i < 200; ++i) {
    const Proposal p = Ask(proposer, text, 255, ShapeLimit::kTree);
    ASSERT_GT(p.tree.num_nodes, 8);
    ASSERT_LE(p.tree.num_nodes, kMaxDepth);
  }
}

// A drafter that was off reads the last 64 tokens only: what lies in the gap is not found, what lies before and behind is.
TEST(Ngram, CatchUpReadsTheLast64) {
  NgramProposer proposer(1000);
  Ints text = {1, 2, 3, 4};
  proposer.Reset(text);
  for (int i = 0; i < 200; ++i) text.push_back(100 + i);
  auto after = [&](int32_t a, int32_t b) {
    text.insert(text.end(), {a, b});
    return Ask(proposer, text, 1, ShapeLimit::kChain).tokens();
  };
  EXPECT_EQ(after(1, 2), Ints{3});
  EXPECT_EQ(after(150, 151), Ints{});     // skipped
  EXPECT_EQ(after(280, 281), Ints{282});  // within the last 64
}

TEST(Ngram, ACorpusAddsWhatOtherRequestsHeld) {
  SuffixCorpus corpus(1 << 20);
  NgramProposer with(100, &corpus), without(100);
  const Ints text = {50, 7, 8};
  EXPECT_EQ(Ask(with, text, 2, ShapeLimit::kChain).tree.num_nodes, 0);
  corpus.Add(Ints{7, 8, 9, 10});
  with.Reset(text);
  EXPECT_EQ(Ask(with, text, 2, ShapeLimit::kChain).tokens(), (Ints{9, 10}));
  EXPECT_EQ(Ask(without, text, 2, ShapeLimit::kChain).tree.num_nodes, 0);
  // Its own text counts beside it: the same token is one node, another a branch.
  const Ints both = {7, 8, 9, 40, 7, 8, 11, 41, 7, 8};
  with.Reset(both);
  const Proposal p = Ask(with, both, 8, ShapeLimit::kTree);
  EXPECT_EQ(p.tree.FindChild(0, 9), 1);  // twice
  EXPECT_GT(p.tree.FindChild(0, 11), 0);
  // Texts that are forgotten are no longer proposed, and the reader goes on.
  SuffixCorpus small(40000);
  NgramProposer reader(100000, &small);
  small.Add(Ints{7, 8, 9, 10});
  reader.Reset(text);
  for (int i = 0; i < 60; ++i) {
    Ints other;
    for (int k = 0; k < 40; ++k) other.push_back(100 + i * 40 + k);
    small.Add(other);
  }
  EXPECT_EQ(Ask(reader, text, 2, ShapeLimit::kChain).tree.num_nodes, 0);
  reader.Observe(Ints{2480, 2481});
  EXPECT_EQ(Ask(reader, {50, 7, 8, 2480, 2481}, 1, ShapeLimit::kChain).tokens(), Ints{2482});
}

TEST(Ngram, NodesBelowTheCostOfARowAreNotProposed) {
  NgramProposer proposer(100);
  const Ints text = {1, 2, 8, 40, 1, 2, 7, 42, 1, 2};
  proposer.Reset(text);
  ProposeContext context;
  context.tokens = text;
  context.budget = {10, ShapeLimit::kTree, 0.35f};
  step::DraftTree tree;
  std::vector<float> probability;
  proposer.Propose(context, &tree, &probability);
  EXPECT_GT(tree.num_nodes, 0);
  for (float p : probability) EXPECT_GE(p, 0.35f);
}

// Case A7: a target that always disagrees still commits one token a round, so 32 tokens take at most 32 rounds; the
// draft follows the text, it is not the failed one over again.
TEST(Ngram, CaseA7ATargetThatAlwaysDisagreesStillAdvances) {
  const int vocab = 16;
  for (ShapeLimit shape : {ShapeLimit::kChain, ShapeLimit::kTree}) {
    Ints text = {1, 2, 3, 1, 2, 3, 1, 2, 3};
    NgramProposer proposer(vocab);
    proposer.Reset(text);
    int rounds = 0, committed = 0, drafted = 0;
    while (committed < 32) {
      Proposal p = Ask(proposer, text, 4, shape);
      ASSERT_TRUE(step::ValidateTree(p.tree, vocab).ok());
      drafted += p.tree.num_nodes;
      // Samples, at each row, the first token that none of its children holds.
      Ints sampled(p.tree.num_rows());
      for (int row = 0; row < p.tree.num_rows(); ++row)
        while (p.tree.FindChild(row, sampled[row]) >= 0) ++sampled[row];
      step::WalkResult walk = step::Walk(p.tree, sampled);
      ASSERT_EQ(walk.num_emitted, 1);
      const Ints emitted(walk.tokens, walk.tokens + walk.num_emitted);
      text.insert(text.end(), emitted.begin(), emitted.end());
      proposer.Observe(emitted);
      committed += walk.num_emitted;
      ++rounds;
      if (rounds == 1) {
        // The context is now "... 3 0", which never occurred: no draft. Not the failed one again.
        EXPECT_EQ(Ask(proposer, text, 4, shape).tree.num_nodes, 0);
      }
    }
    EXPECT_EQ(rounds, 32);
    EXPECT_GT(drafted, 0);
  }
}

}  // namespace
}  // namespace lockstep::spec
