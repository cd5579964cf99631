#include "step/accept_walk.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "step/sampler.h"

namespace lockstep::step {
namespace {

DraftTree Tree(const std::vector<int>& parents, const std::vector<int>& tokens) {
  DraftTree tree;
  tree.Reset(tokens[0]);
  for (size_t row = 1; row < parents.size(); ++row) tree.Add(parents[row], tokens[row]);
  return tree;
}

std::vector<int32_t> Rows(const WalkResult& w) {
  return {w.rows, w.rows + w.num_emitted};
}
std::vector<int32_t> Tokens(const WalkResult& w) {
  return {w.tokens, w.tokens + w.num_emitted};
}
std::vector<KvMove> Moves(const WalkResult& w) {
  std::vector<KvMove> moves(kMaxTreeRows);
  moves.resize(CompactionMoves(w, moves));
  return moves;
}

using Ints = std::vector<int32_t>;
using KvMoves = std::vector<KvMove>;

// Case A8. Rows 0..7, parents as published; the token of row r is 10 + r.
TEST(AcceptWalk, TheTreeOfCaseA8) {
  DraftTree tree = Tree({-1, 0, 0, 1, 2, 2, 4, 5}, {10, 11, 12, 13, 14, 15, 16, 17});
  ASSERT_TRUE(ValidateTree(tree, 100).ok());
  // 0-2-5-7: row 0 samples 12, row 2 samples 15, row 5 samples 17, row 7 a token that no row holds.
  WalkResult walk = Walk(tree, Ints{12, 13, 15, 99, 16, 17, 99, 50});
  EXPECT_EQ(Rows(walk), (Ints{0, 2, 5, 7}));
  EXPECT_EQ(Tokens(walk), (Ints{12, 15, 17, 50}));
  EXPECT_EQ(walk.num_accepted(), 3);
  EXPECT_EQ(Moves(walk), (KvMoves{{2, 1}, {5, 2}, {7, 3}}));
  // 0-1-3.
  walk = Walk(tree, Ints{11, 13, 15, 60, 16, 17, 99, 50});
  EXPECT_EQ(Rows(walk), (Ints{0, 1, 3}));
  EXPECT_EQ(Tokens(walk), (Ints{11, 13, 60}));
  EXPECT_EQ(Moves(walk), (KvMoves{{3, 2}}));
  // Only 0.
  walk = Walk(tree, Ints{99, 13, 15, 60, 16, 17, 99, 50});
  EXPECT_EQ(Rows(walk), Ints{0});
  EXPECT_EQ(Tokens(walk), Ints{99});
  EXPECT_TRUE(Moves(walk).empty());
  // A token elsewhere in the tree is not a child.
  walk = Walk(tree, Ints{15, 0, 0, 0, 0, 17, 0, 0});
  EXPECT_EQ(Tokens(walk), Ints{15});
}

TEST(AcceptWalk, OfTwoSiblingsWithTheSameTokenTheFirstWins) {
  // Both branches hold 11; what stands below the second is never reached.
  DraftTree tree = Tree({-1, 0, 0, 2, 1}, {10, 11, 11, 12, 13});
  WalkResult walk = Walk(tree, Ints{11, 12, 12, 14, 14});
  EXPECT_EQ(Rows(walk), (Ints{0, 1}));
  EXPECT_EQ(Tokens(walk), (Ints{11, 12}));
  EXPECT_TRUE(Moves(walk).empty());
  // The same token on different levels is no conflict.
  tree = Tree({-1, 0, 1, 2}, {11, 11, 11, 11});
  EXPECT_EQ(Tokens(Walk(tree, Ints{11, 11, 11, 11})), (Ints{11, 11, 11, 11}));
}

TEST(AcceptWalk, AChainNeedsNoCopyAndNoDraftIsAPlainStep) {
  DraftTree chain = Tree({-1, 0, 1, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(chain.IsChain());
  EXPECT_TRUE(Moves(Walk(chain, Ints{2, 3, 4, 5})).empty());
  DraftTree empty;
  empty.Reset(7);
  EXPECT_EQ(Tokens(Walk(empty, Ints{9})), Ints{9});
}

TEST(AcceptWalk, AFailedRowEndsTheWalkAndOnlyOnThePath) {
  DraftTree tree = Tree({-1, 0, 0, 1}, {10, 11, 12, 13});
  WalkResult walk = Walk(tree, Ints{11, -1, 5, 5});
  EXPECT_EQ(Tokens(walk), Ints{11});
  EXPECT_EQ(walk.failed_row, 1);
  walk.Truncate(0);
  EXPECT_EQ(walk.failed_row, -1);
  walk = Walk(tree, Ints{11, 40, -1, -1});  // rows that plain decoding would never have run
  EXPECT_EQ(Tokens(walk), (Ints{11, 40}));
  EXPECT_EQ(walk.failed_row, -1);
  walk = Walk(tree, Ints{-1, 5, 5, 5});
  EXPECT_EQ(walk.num_emitted, 0);
  EXPECT_EQ(walk.num_accepted(), 0);
  EXPECT_EQ(walk.failed_row, 0);
}

TEST(AcceptWalk, InvalidTreesAreNamed) {
  auto text = [](auto change) {
    DraftTree tree = Tree({-1, 0, 1}, {1, 2, 3});
    change(tree);
    Status status = ValidateTree(tree, 10);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_NE(text([](DraftTree& t) { t.num_nodes = 256; }).find("256 nodes"), std::string::npos);
  EXPECT_NE(text([](DraftTree& t) { t.num_nodes = -1; }).find("-1 nodes"), std::string::npos);
  EXPECT_NE(text([](DraftTree& t) { t.parents[0] = 0; }).find("row 0"), std::string::npos);
  EXPECT_NE(text([](DraftTree& t) { t.parents[2] = 2; }).find("row 2 has parent 2"), std::string::npos);
  EXPECT_NE(text([](DraftTree& t) { t.parents[1] = -1; }).find("row 1 has parent -1"), std::string::npos);
  EXPECT_NE(text([](DraftTree& t) { t.parents[1] = 2; }).find("row 1 has parent 2"), std::string::npos);
  EXPECT_NE(text([](DraftTree& t) { t.tokens[2] = 10; }).find("token 10"), std::string::npos);
  EXPECT_NE(text([](DraftTree& t) { t.tokens[2] = -1; }).find("token -1"), std::string::npos);
}

// A target without a model: the next token is a hash of all tokens before.
int32_t Target(const std::vector<int32_t>& context, int alphabet) {
  uint64_t h = 88172645463325252ull;
  for (int32_t t : context) h = (h ^ static_cast<uint64_t>(t + 1)) * 0x9E3779B97F4A7C15ull + (h >> 29);
  return static_cast<int32_t>((h >> 33) % alphabet);
}

// Against brute force: for random trees over small alphabets the walk's tokens are those of plain decoding, the run is
// as long as the tree allows, and the copies bring the path to the first slots.
TEST(AcceptWalk, RandomTreesAgreeWithPlainDecoding) {
  std::mt19937 rng(11);
  int64_t num_accepted = 0, num_moves = 0;
  for (int trial = 0; trial < 30000; ++trial) {
    const int alphabet = 1 + rng() % 4;
    const int num_rows = 1 + rng() % (trial % 100 == 0 ? kMaxTreeRows : 24);
    DraftTree tree;
    tree.Reset(rng() % alphabet);
    for (int row = 1; row < num_rows; ++row) tree.Add(trial % 3 == 0 ? row - 1 : rng() % row, rng() % alphabet);
    ASSERT_TRUE(ValidateTree(tree, alphabet).ok());
    std::vector<int32_t> committed(1 + rng() % 5);
    for (int32_t& t : committed) t = rng() % alphabet;
    committed.push_back(tree.tokens[0]);

    std::vector<std::vector<int32_t>> paths(num_rows);  // the tokens of each row's path, by another route than Depth
    std::vector<int32_t> sampled(num_rows);
    for (int row = 0; row < num_rows; ++row) {
      if (row > 0) paths[row] = paths[tree.parents[row]], paths[row].push_back(tree.tokens[row]);
      std::vector<int32_t> context = committed;
      context.insert(context.end(), paths[row].begin(), paths[row].end());
      sampled[row] = Target(context, alphabet);
      std::vector<int32_t> path(kMaxTreeRows);
      path.resize(tree.PathTokens(row, path));
      ASSERT_EQ(path, paths[row]);
    }
    WalkResult walk = Walk(tree, sampled);

    std::vector<int32_t> plain, context = committed;
    for (int i = 0; i <= walk.num_emitted; ++i) {
      plain.push_back(Target(context, alphabet));
      context.push_back(plain.back());
    }
    const std::vector<int32_t> tokens = Tokens(walk);
    ASSERT_GE(walk.num_emitted, 1);
    ASSERT_EQ(tokens, std::vector<int32_t>(plain.begin(), plain.begin() + walk.num_emitted));
    // Longest: no row holds the whole run, and a row holds each shorter one. Rows below a sibling that repeats an
    // earlier one's token do not count: the first wins.
    size_t deepest = 0;
    std::vector<bool> hidden(num_rows);
    for (int row = 0; row < num_rows; ++row) {
      if (row > 0) {
        hidden[row] = hidden[tree.parents[row]];
        for (int other = 1; other < row; ++other)
          if (tree.parents[other] == tree.parents[row] && tree.tokens[other] == tree.tokens[row]) hidden[row] = true;
      }
      const auto& path = paths[row];
      if (!hidden[row] && path.size() <= tokens.size() && std::equal(path.begin(), path.end(), tokens.begin()))
        deepest = std::max(deepest, path.size());
    }
    ASSERT_EQ(deepest, tokens.size() - 1);

    std::vector<int> kv(num_rows);  // slot contents: the row that wrote it
    for (int row = 0; row < num_rows; ++row) kv[row] = row;
    for (const KvMove& move : Moves(walk)) {
      ASSERT_LT(move.to_row, move.from_row);
      kv[move.to_row] = kv[move.from_row];
    }
    for (int i = 0; i < walk.num_emitted; ++i) ASSERT_EQ(kv[i], walk.rows[i]);
    num_accepted += walk.num_accepted();
    num_moves += Moves(walk).size();
    const int cut = 1 + static_cast<int>(rng() % walk.num_emitted);
    walk.Truncate(cut);
    ASSERT_EQ(walk.num_accepted(), cut - 1);
    ASSERT_LE(Moves(walk).size(), static_cast<size_t>(cut));
  }
  EXPECT_GT(num_accepted, 10000);
  EXPECT_GT(num_moves, 1000);
}

// Sampling at every row with the row's own position and path, then walking, gives the text of plain sampling: the whole
// of P1 in small. Penalties make the distribution depend on the path.
TEST(AcceptWalk, SampledTextIsTheSameWithAnyDrafts) {
  const int vocab = 6;
  auto logits_of = [&](int32_t last, int64_t position) {
    std::vector<float> logits(vocab);
    for (int v = 0; v < vocab; ++v) logits[v] = static_cast<float>((last * 7 + v * 5 + position * 3) % 11) * 0.3f;
    return logits;
  };
  std::mt19937 rng(4);
  Sampler sampler(vocab);
  for (int trial = 0; trial < 200; ++trial) {
    auto spec = MakeSamplingSpec({.temperature = 0.9f,
                                  .top_k = trial % 2 ? 4 : 0,
                                  .repetition_penalty = 1.3f,
                                  .frequency_penalty = 0.2f,
                                  .seed = static_cast<uint64_t>(trial)},
                                 vocab);
    ASSERT_TRUE(spec.ok());
    const std::vector<int32_t> prompt = {1, 4, 2};
    auto generate = [&](bool draft) {
      std::vector<int32_t> output;
      int rounds = 0;
      while (output.size() < 60) {
        DraftTree tree;
        tree.Reset(output.empty() ? prompt.back() : output.back());
        if (draft)
          for (int i = 0, n = rng() % 16; i < n; ++i) tree.Add(rng() % tree.num_rows(), rng() % vocab);
        std::vector<int32_t> sampled(tree.num_rows());
        for (int row = 0; row < tree.num_rows(); ++row) {
          int32_t path[kMaxTreeRows];
          SampleRequest request;
          const int depth = tree.PathTokens(row, path);
          request.position = static_cast<int64_t>(prompt.size() + output.size()) + depth;
          const std::vector<float> logits = logits_of(tree.tokens[row], request.position);
          request.logits = logits.data();
          request.vocab = vocab;
          request.spec = &*spec;
          request.prompt_tokens = prompt;
          request.output_tokens = output;
          request.path_tokens = {path, static_cast<size_t>(depth)};
          sampled[row] = sampler.Sample(request).token;
        }
        WalkResult walk = Walk(tree, sampled);
        for (int32_t token : Tokens(walk)) output.push_back(token);
        ++rounds;
      }
      output.resize(60);
      return std::pair(output, rounds);
    };
    auto [plain, plain_rounds] = generate(false);
    auto [drafted, drafted_rounds] = generate(true);
    ASSERT_EQ(plain, drafted);
    ASSERT_EQ(plain_rounds, 60);
    ASSERT_LT(drafted_rounds, 60);
  }
}

}  // namespace
}  // namespace lockstep::step
