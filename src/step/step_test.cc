// Rows never mix: what a row's logits are does not depend on the step it stands in (docs/numerics.md, 1 and 5).
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "comm/test_util.h"
#include "step/test_util.h"

namespace lockstep::step {
namespace {

using testing::SameBits;
using testing::Session;
using testing::SomeTokens;
using testing::TinyModel;
using Rows = std::vector<std::vector<float>>;

constexpr int kLength = 140;  // two page borders: 64 and 128
constexpr char kQuantised[] = "seed=1, dtype='Q4_1'";
constexpr char kHeadsOf32[] = "seed=1, head_dim=32, dtype='Q4_1'";  // a q8_0 cache needs blocks of 32

StepOptions Options(int num_sequences = 1, int threads = 1, int tp = 1) {
  StepOptions options;
  options.tp = tp;
  options.num_sequences = num_sequences;
  options.threads = threads;
  return options;
}

// The first row that differs, or -1. Of empty sets nothing can be said, so they differ.
int FirstDifference(const Rows& a, const Rows& b) {
  if (a.size() != b.size() || a.empty()) return 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!SameBits(a[i], b[i])) return static_cast<int>(i);
  }
  return -1;
}

bool AllFinite(const Rows& rows) {
  for (const auto& row : rows) {
    for (float x : row) {
      if (!std::isfinite(x)) return false;
    }
  }
  return !rows.empty();
}

DraftTree RandomTree(std::mt19937& rng, int rows, int vocab, bool repeated_tokens) {
  DraftTree tree;
  tree.Reset(static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab)));
  for (int row = 1; row < rows; ++row) {
    const int parent = static_cast<int>(rng() % static_cast<uint32_t>(row));
    tree.Add(parent, static_cast<int32_t>(repeated_tokens ? 7 : rng() % static_cast<uint32_t>(vocab)));
  }
  return tree;
}

// The logits of each row of a tree, each from plain steps of one row along its path. `sequence` holds the same
// `committed` tokens; its slots behind them are overwritten.
Rows PlainAlongPaths(Session& session, int sequence, const DraftTree& tree, int committed) {
  Rows rows;
  for (int row = 0; row < tree.num_rows(); ++row) {
    int32_t path[kMaxTreeRows];
    const int depth = tree.PathTokens(row, path);
    session.AddChain(sequence, std::span(tree.tokens, 1), committed);
    session.Run();
    for (int i = 0; i < depth; ++i) {
      session.AddChain(sequence, std::span(path + i, 1), committed + 1 + i);
      session.Run();
    }
    rows.push_back(session.Logits(0));
  }
  return rows;
}

Rows TreeStep(Session& session, int sequence, const DraftTree& tree, int committed) {
  session.Add(sequence, tree, committed);
  session.Run();
  Rows rows;
  for (int i = 0; i < tree.num_rows(); ++i) rows.push_back(session.Logits(i));
  return rows;
}

// Steps of every width from 2 to 17 over all positions: the page borders fall on every place of a step.
TEST(RowsNeverMix, WidthAndPlaceInAChain) {
  for (int threads : {1, 2}) {
    Session session(TinyModel(kQuantised), Options(1, threads));
    const std::vector<int32_t> tokens = SomeTokens(kLength, session.vocab(), 3);
    const Rows plain = session.Feed(0, tokens, 0, 1);
    ASSERT_TRUE(AllFinite(plain));
    ASSERT_FALSE(SameBits(plain[10], plain[11]));
    for (int width = 2; width <= 17; ++width) {
      EXPECT_EQ(FirstDifference(plain, session.Feed(0, tokens, 0, width)), -1) << "width " << width;
    }
  }
}

// A prompt's chunk samples its last row only.
TEST(RowsNeverMix, ChunksOfAPrompt) {
  Session session(TinyModel(kQuantised));
  const std::vector<int32_t> tokens = SomeTokens(kLength, session.vocab(), 4);
  const Rows plain = session.Feed(0, tokens, 0, 1);
  for (int chunk : {1, 2, 5, 24, 63, 64, 65, 140}) {
    for (int at = 0; at < kLength; at += chunk) {
      const int n = std::min(chunk, kLength - at);
      AddPrefill(session.runner().input(), 0, std::span(tokens).subspan(size_t(at), size_t(n)), at, true,
                 session.runner().pages_per_sequence());
      session.runner().input().sequences[0].sampling = {};
      session.Run();
      ASSERT_TRUE(SameBits(plain[size_t(at + n - 1)], session.Logits(0))) << "chunk " << chunk << " at " << at;
    }
  }
}

TEST(RowsNeverMix, OtherSequencesInTheStep) {
  for (int threads : {1, 2}) {
    Session session(TinyModel(kQuantised), Options(3, threads));
    std::vector<std::vector<int32_t>> tokens;
    std::vector<Rows> plain;
    for (int s = 0; s < 3; ++s) {
      tokens.push_back(SomeTokens(kLength, session.vocab(), 10u + uint32_t(s)));
      plain.push_back(session.Feed(s, tokens.back(), 0, 1));
    }
    std::mt19937 rng(5);
    int at[3] = {0, 40, 100};  // the sequences meet at different positions
    int mixed_steps = 0;
    while (at[0] < kLength) {
      int order[3] = {0, 1, 2};
      std::shuffle(order, order + 3, rng);
      std::vector<std::pair<int, int>> expected;  // sequence, position of each logits row
      int sequences = 0;
      for (int s : order) {
        const int n = std::min<int>(1 + int(rng() % 9), kLength - at[s]);
        if (n <= 0 || (rng() % 4 == 0 && sequences > 0)) continue;
        session.AddChain(s, std::span(tokens[size_t(s)]).subspan(size_t(at[s]), size_t(n)), at[s]);
        for (int i = 0; i < n; ++i) expected.push_back({s, at[s] + i});
        at[s] += n;
        ++sequences;
      }
      session.Run();
      mixed_steps += sequences > 1;
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto [s, position] = expected[i];
        ASSERT_TRUE(SameBits(plain[size_t(s)][size_t(position)], session.Logits(int(i))))
            << "sequence " << s << " position " << position << " row " << i << " threads " << threads;
      }
    }
    EXPECT_GT(mixed_steps, 5);
  }
}

TEST(RowsNeverMix, BranchesOfATree) {
  for (int threads : {1, 2}) {
    Session session(TinyModel(kQuantised), Options(2, threads));
    const std::vector<int32_t> tokens = SomeTokens(kLength, session.vocab(), 21);
    std::mt19937 rng(threads);
    for (int committed : {0, 5, 60, 61, 62, 63, 64, 65, 70, 126, 127, 128, 129, 130}) {
      if (committed > 0) {
        for (int s : {0, 1}) session.Feed(s, std::span(tokens).first(size_t(committed)), 0, 17);
      }
      const int rows = 2 + int(rng() % 16);
      const DraftTree tree = RandomTree(rng, rows, session.vocab(), committed % 2 == 1);
      EXPECT_EQ(FirstDifference(PlainAlongPaths(session, 1, tree, committed), TreeStep(session, 0, tree, committed)),
                -1)
          << "behind " << committed << " tokens, " << rows << " rows";
    }
  }
}

// With a long context and few rows the threads of a rank share the chunks of keys instead of the heads.
TEST(RowsNeverMix, ChunksSharedByThreads) {
  const std::string path =
      TinyModel("seed=12, layers=2, heads=9, kv_heads=3, head_dim=32, ffn=64, context=1024, dtype='Q8_0'");
  constexpr int kLong = 460;
  Session one(path);
  const std::vector<int32_t> tokens = SomeTokens(kLong, one.vocab(), 31);
  const Rows plain = one.Feed(0, tokens, 0, 17);
  std::mt19937 rng(5);
  std::vector<DraftTree> trees;
  for (int rows : {1, 2, 3, 5, 6}) trees.push_back(RandomTree(rng, rows, one.vocab(), false));
  std::vector<Rows> expected;
  for (const DraftTree& tree : trees) expected.push_back(TreeStep(one, 0, tree, kLong));
  for (auto [tp, threads] : {std::pair(1, 2), std::pair(1, 3), std::pair(1, 5), std::pair(2, 2)}) {
    Session session(path, Options(1, threads, tp));
    for (int width : {1, 2, 5, 40}) {
      const Rows rows = session.Feed(0, tokens, 0, width);
      EXPECT_EQ(FirstDifference(plain, rows), -1) << tp << " x " << threads << ", width " << width;
    }
    for (size_t i = 0; i < trees.size(); ++i) {
      EXPECT_EQ(FirstDifference(expected[i], TreeStep(session, 0, trees[i], kLong)), -1)
          << tp << " x " << threads << ", tree of " << trees[i].num_rows();
    }
    // More kernel calls than with few keys, or nothing was shared and this test says nothing.
    TreeStep(session, 0, trees[0], 100);
    const auto whole_heads = session.runner().census().kernels;
    TreeStep(session, 0, trees[0], kLong);
    if (threads == 3) continue;  // as many as kv heads: none is cut
    EXPECT_GT(session.runner().census().kernels, whole_heads) << tp << " x " << threads;
  }
}

TEST(RowsNeverMix, ASiblingIsNotRead) {
  Session session(TinyModel(kQuantised));
  const std::vector<int32_t> tokens = SomeTokens(62, session.vocab(), 22);
  session.Feed(0, tokens, 0, 17);
  std::mt19937 rng(9);
  const DraftTree tree = RandomTree(rng, 14, session.vocab(), false);
  const Rows before = TreeStep(session, 0, tree, 62);
  for (int changed = 1; changed < tree.num_rows(); ++changed) {
    DraftTree other = tree;
    other.tokens[changed] = (other.tokens[changed] + 1) % session.vocab();
    const Rows after = TreeStep(session, 0, other, 62);
    for (int row = 0; row < tree.num_rows(); ++row) {
      bool below = false;  // is `changed` on the row's path?
      for (int r = row; r >= 0; r = tree.parents[r]) below = below || r == changed;
      EXPECT_EQ(SameBits(before[size_t(row)], after[size_t(row)]), !below) << "row " << row << ", changed " << changed;
    }
  }
}

// Accepts the path that ends at `leaf`: what the engine does after a round.
struct Compaction {
  std::vector<int32_t> tokens;  // of the path, the root's included
  std::vector<KvMove> moves;
};
Compaction Accept(const DraftTree& tree, int leaf) {
  WalkResult walk;
  std::vector<int> path;
  for (int r = leaf; r >= 0; r = tree.parents[r]) path.insert(path.begin(), r);
  Compaction c;
  for (int r : path) {
    walk.rows[walk.num_emitted++] = r;
    c.tokens.push_back(tree.tokens[r]);
  }
  c.moves.resize(path.size());
  c.moves.resize(size_t(CompactionMoves(walk, c.moves)));
  return c;
}

void ExpectCompactionEqualsPlain(const std::vector<std::pair<DraftTree, int>>& rounds, int threads, DType kv_dtype) {
  StepOptions options = Options(2, threads);
  options.kv_dtype = kv_dtype;
  Session session(TinyModel(kv_dtype == DType::kQ8_0 ? kHeadsOf32 : kQuantised), options);
  std::vector<int32_t> text = SomeTokens(57, session.vocab(), 31);
  session.Feed(0, text, 0, 17);
  std::vector<KvMove> moves;
  int num_moves = 0;
  for (const auto& [tree, leaf] : rounds) {
    const int committed = int(text.size());
    StepInput& in = session.runner().input();
    session.Add(0, tree, committed);
    for (const KvMove& m : moves) in.copies[in.num_copies++] = {0, m.from_row, m.to_row};
    session.Run();
    Compaction c = Accept(tree, leaf);
    moves = c.moves;
    num_moves += int(moves.size());
    for (KvMove& m : moves) m = {m.from_row + committed, m.to_row + committed};
    text.insert(text.end(), c.tokens.begin(), c.tokens.end());
  }
  // Then plain decoding goes on from the moved keys, and from keys that were never moved.
  const size_t end_of_rounds = text.size();
  for (int32_t t : SomeTokens(20, session.vocab(), 32)) text.push_back(t);
  StepInput& in = session.runner().input();
  session.AddChain(0, std::span(text).subspan(end_of_rounds, 1), int(end_of_rounds));
  for (const KvMove& m : moves) in.copies[in.num_copies++] = {0, m.from_row, m.to_row};
  session.Run();
  Rows after = {session.Logits(0)};
  for (auto& row : session.Feed(0, text, int(end_of_rounds) + 1, 1)) after.push_back(std::move(row));
  Rows plain = session.Feed(1, text, 0, 1);
  plain.erase(plain.begin(), plain.begin() + std::ptrdiff_t(end_of_rounds));
  EXPECT_EQ(FirstDifference(plain, after), -1);
  EXPECT_GT(num_moves, 0);
}

// The tree of the report: parents -1 0 0 1 2 2 4 5; first 0-2-5-7 is accepted, then 0-1-3, then the root alone.
TEST(Compaction, ScatteredPathsContinueLikePlainDecoding) {
  DraftTree tree;
  tree.Reset(11);
  const int parents[] = {0, 0, 1, 2, 2, 4, 5};
  for (int i = 0; i < 7; ++i) tree.Add(parents[i], 40 + 13 * i);
  DraftTree same_tokens = tree;
  same_tokens.tokens[2] = same_tokens.tokens[1];  // two branches that begin alike
  for (int threads : {1, 2}) {
    ExpectCompactionEqualsPlain({{tree, 7}, {tree, 3}, {tree, 0}, {same_tokens, 7}}, threads, DType::kF16);
  }
}

TEST(Compaction, ManyRandomRoundsAcrossPageBorders) {
  for (DType kv : {DType::kF16, DType::kF32, DType::kQ8_0}) {
    std::mt19937 rng(77);
    std::vector<std::pair<DraftTree, int>> rounds;
    int length = 57;
    while (length < 150) {
      DraftTree tree = RandomTree(rng, 2 + int(rng() % 16), 320, false);
      const int leaf = int(rng() % uint32_t(tree.num_rows()));
      length += 1 + tree.Depth(leaf);
      rounds.push_back({tree, leaf});
    }
    ExpectCompactionEqualsPlain(rounds, 1, kv);
  }
}

// Chunks, a tree and two ranks against one row at a time.
void ExpectSameRows(const std::string& path, DType kv, const std::string& what) {
  StepOptions options = Options(2);
  options.kv_dtype = kv;
  Session one(path, options);
  const std::vector<int32_t> tokens = SomeTokens(70, one.vocab(), 41);
  const Rows plain = one.Feed(0, tokens, 0, 1);
  ASSERT_TRUE(AllFinite(plain)) << what;
  for (int chunk : {3, 8, 17}) EXPECT_EQ(FirstDifference(plain, one.Feed(0, tokens, 0, chunk)), -1) << what << chunk;
  std::mt19937 rng(1);
  one.Feed(0, tokens, 0, 17);
  one.Feed(1, tokens, 0, 17);
  const DraftTree tree = RandomTree(rng, 11, one.vocab(), false);
  EXPECT_EQ(FirstDifference(PlainAlongPaths(one, 1, tree, 70), TreeStep(one, 0, tree, 70)), -1) << what;
  options.tp = 2;
  Session two(path, options);
  EXPECT_EQ(FirstDifference(plain, two.Feed(0, tokens, 0, 1)), -1) << what << " tp 2";
  EXPECT_EQ(FirstDifference(plain, two.Feed(0, tokens, 0, 9)), -1) << what << " tp 2, 9 rows";
}

TEST(WeightTypes, EachKeepsItsRowsAndItsRanks) {
  for (const char* type : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K_M", "Q5_K_M", "F16", "BF16", "F32"}) {
    const bool superblocks = std::string(type).find('K') != std::string::npos;
    const std::string path = TinyModel("seed=2, tied=False, dtype='" + std::string(type) +
                                       (superblocks ? "', layers=1, hidden=256, ffn=256, heads=8, head_dim=32" : "'"));
    for (DType kv : {DType::kF16, DType::kF32}) ExpectSameRows(path, kv, type);
  }
}

// A group of query heads that two ranks share; heads wider than D / H.
TEST(Architectures, EachKeepsItsRowsAndItsRanks) {
  for (const char* arch : {"qwen2", "qwen3"}) {
    for (const char* type : {"F32", "Q8_0"}) {
      const std::string what = std::string(arch) + " " + type;
      const std::string path =
          TinyModel("seed=2, heads=6, kv_heads=2, head_dim=32, arch='" + std::string(arch) + "', dtype='" + type + "'");
      for (DType kv : {DType::kF16, DType::kF32}) ExpectSameRows(path, kv, what);
    }
  }
}

TEST(KvInQ8, KeepsRowsRanksThreadsAndTrees) {
  const std::string path = TinyModel("seed=3, heads=6, kv_heads=2, head_dim=64, hidden=96, ffn=160, dtype='Q4_1'");
  StepOptions options = Options(2);
  options.kv_dtype = DType::kQ8_0;
  Session one(path, options);
  const std::vector<int32_t> tokens = SomeTokens(kLength, one.vocab(), 51);
  const Rows plain = one.Feed(0, tokens, 0, 1);
  ASSERT_TRUE(AllFinite(plain));
  StepOptions f16 = options;
  f16.kv_dtype = DType::kF16;
  EXPECT_NE(FirstDifference(plain, Session(path, f16).Feed(0, tokens, 0, 1)), -1) << "is the type used at all?";
  for (int chunk : {2, 4, 5, 17, 63, 64}) EXPECT_EQ(FirstDifference(plain, one.Feed(0, tokens, 0, chunk)), -1) << chunk;
  std::mt19937 rng(4);
  for (int committed : {3, 63, 64, 130}) {
    for (int s : {0, 1}) one.Feed(s, std::span(tokens).first(size_t(committed)), 0, 17);
    const DraftTree tree = RandomTree(rng, 12, one.vocab(), false);
    EXPECT_EQ(FirstDifference(PlainAlongPaths(one, 1, tree, committed), TreeStep(one, 0, tree, committed)), -1)
        << committed;
  }
  for (auto [tp, threads] : {std::pair(1, 2), std::pair(2, 1), std::pair(2, 2), std::pair(4, 1)}) {
    options.tp = tp;
    options.threads = threads;
    for (comm::RankMode mode : comm::testing::Modes()) {
      options.rank_mode = mode;
      Session cut(path, options);
      for (int chunk : {1, 9}) {
        EXPECT_EQ(FirstDifference(plain, cut.Feed(0, tokens, 0, chunk)), -1) << tp << " x " << threads << " " << chunk;
      }
    }
  }
}

TEST(KvInQ8, NeedsHeadsOfWholeBlocks) {
  StepOptions options = Options();
  options.kv_dtype = DType::kQ8_0;
  auto source = model::OpenGgufWeights(TinyModel(kQuantised));
  ASSERT_TRUE(source.ok());
  const Status status = StepRunner::Create(std::move(source).value(), options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "--kv-cache-dtype q8_0: the model's head_dim is 16; it must be a multiple of 32");
}

}  // namespace
}  // namespace lockstep::step
