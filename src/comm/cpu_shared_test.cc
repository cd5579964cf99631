#include "comm/cpu_shared.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "comm/test_util.h"

namespace lockstep::comm {
namespace {

using testing::Mix;

// Faults that the conformance run must find (a checker that never fails proves nothing).
enum class Mutation { kNone, kLeftFold, kNoSync, kOneParity };

// Leaf values: the rule's visible part says rank and index, the random part makes every order of addition differ.
float LeafValue(uint64_t call, int leaf, size_t i) {
  const uint64_t r = Mix(call * 1000003 + leaf * 7919 + i);
  const float random = static_cast<float>(static_cast<int64_t>(r >> 40) - (1 << 23)) * 0x1p-14f;
  return static_cast<float>((leaf + 1) * 1000 + static_cast<int>(i % 251)) + random;
}

template <typename Value>
float Evaluate(const TreeProgram& program, Value value) {
  std::vector<float> stack;
  for (int p = 0; p < program.num_values(); ++p) {
    stack.push_back(value(p));
    for (int m = 0; m < program.merges_after[p]; ++m) {
      const float upper = stack.back();
      stack.pop_back();
      stack.back() = stack.back() + upper;
    }
  }
  return stack[0];
}

struct Conformance {
  CanonicalTree tree{8};
  std::vector<TreeShare> shares;
  size_t capacity = 2048;
  std::vector<size_t> counts;
  int num_calls = 0;
  Mutation mutation = Mutation::kNone;

  std::atomic<uint64_t>& Mismatches(Member& m) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(m.group().shared().data());
  }

  // Every thread writes one slice of its rank's partials and checks the slice of its neighbour thread.
  void Step(Member& m) const {
    auto workspace = CpuShared::Create(m.group().shared().subspan(4096), CpuShared::kMaxPartials, capacity);
    LS_CHECK(workspace.ok());
    const CpuShared::Site site = CpuShared::Bind(tree, shares, m.rank());
    const TreeShare& share = shares[m.rank()];
    const int threads = m.threads_per_rank();
    std::vector<float> out(capacity);
    for (int n = 0; n < num_calls; ++n) {
      const size_t count = counts[n % counts.size()];
      const uint64_t seed = (n * 64 + m.rank()) * 64 + m.thread();
      CpuShared::Call call = workspace->Begin(site, 1, count);
      if (mutation == Mutation::kOneParity) call = workspace->Begin(site, 1, count);
      testing::RandomDelay(seed);
      auto slice = [&](int t) { return count * t / threads; };
      for (int s = 0; s < call.num_mine; ++s) {
        for (size_t i = slice(m.thread()); i < slice(m.thread() + 1); ++i) {
          call.mine[s][i] = Evaluate(share.subtrees[s].program,
                                     [&](int leaf) { return LeafValue(n, share.subtrees[s].first_leaf + leaf, i); });
        }
      }
      if (mutation != Mutation::kNoSync && !m.SyncWorld(SyncOp::kAllReduce)) return;
      testing::RandomDelay(seed + 13);
      if (mutation == Mutation::kOneParity && m.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      const int neighbour = (m.thread() + 1) % threads;
      const size_t begin = slice(neighbour), end = slice(neighbour + 1);
      SumPartials(call, begin, end, out.data());
      for (size_t i = begin; i < end; ++i) {
        if (mutation == Mutation::kLeftFold) {
          out[i] = call.partials[0][i];
          for (int p = 1; p < call.num_partials; ++p) out[i] += call.partials[p][i];
        }
        const float want = Evaluate(tree.Program(), [&](int leaf) { return LeafValue(n, leaf, i); });
        if (std::bit_cast<uint32_t>(out[i]) != std::bit_cast<uint32_t>(want)) ++Mismatches(m);
      }
    }
    m.SyncWorld(SyncOp::kEnd);
  }

  // Mismatching elements of all members.
  uint64_t Go(int world, int threads, RankMode mode) {
    auto made = tree.Share(world);
    LS_CHECK(made.ok());
    shares = *made;
    auto pool = RankPool::Start(testing::Options(world, threads, mode),
                                testing::StepLoop([this](Member& m, uint32_t) { Step(m); }));
    LS_CHECK(pool.ok());
    (*pool)->leader().PostCommand(1);
    Step((*pool)->leader());
    const uint64_t mismatches = Mismatches((*pool)->leader());
    Status status = (*pool)->Join();
    EXPECT_TRUE(status.ok()) << status.message();
    return mismatches;
  }
};

TEST(CpuShared, EqualsTheCanonicalTreeForEveryWorldModeAndCount) {
  for (RankMode mode : testing::Modes()) {
    for (int world = 1; world <= 8; ++world) {
      for (int threads : {1, 2}) {
        for (int units : {8, 9, 23}) {
          Conformance run;
          run.tree = CanonicalTree(units);
          run.counts = {0, 1, 7, 15, 16, 17, 33, 251, 1000, 2048};
          run.num_calls = 60;
          EXPECT_EQ(run.Go(world, threads, mode), 0u)
              << world << " ranks x " << threads << ", " << testing::ModeName(mode);
        }
      }
    }
  }
}

TEST(CpuShared, StaysEqualOverThousandsOfEpochs) {
  for (RankMode mode : testing::Modes()) {
    for (int world : {2, 3}) {
      Conformance run;
      run.counts = {1, 64, 7};
      run.num_calls = testing::kThreadSanitizer ? 2000 : 10000;
      EXPECT_EQ(run.Go(world, 1, mode), 0u) << world << " " << testing::ModeName(mode);
    }
  }
}

TEST(CpuShared, TheCheckFindsAWrongOrderAMissingBarrierAndASingleParity) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "the planted races are races";
  for (Mutation mutation : {Mutation::kLeftFold, Mutation::kNoSync, Mutation::kOneParity}) {
    Conformance run;
    run.counts = {1000};
    run.num_calls = 50;
    run.mutation = mutation;
    EXPECT_GT(run.Go(4, 1, RankMode::kThread), 0u) << static_cast<int>(mutation);
  }
}

TEST(CpuShared, MinusZeroNanAndInfinityPassTheTree) {
  auto group = Group::Create(testing::Options(2, 1, RankMode::kThread));
  ASSERT_TRUE(group.ok());
  CanonicalTree tree(2);
  auto shares = tree.Share(2);
  auto workspace = CpuShared::Create((*group)->shared(), 2, 4);
  ASSERT_TRUE(workspace.ok());
  auto site0 = CpuShared::Bind(tree, *shares, 0);
  CpuShared::Call call = workspace->Begin(site0, 1, 4);
  float* upper = const_cast<float*>(call.partials[1]);
  const float inf = std::numeric_limits<float>::infinity();
  const float lower_values[] = {-0.0f, inf, inf, 1e-45f};
  const float upper_values[] = {-0.0f, 1.0f, -inf, 0.0f};
  std::memcpy(call.mine[0], lower_values, sizeof(lower_values));
  std::memcpy(upper, upper_values, sizeof(upper_values));
  float out[4];
  SumPartials(call, 0, 4, out);
  EXPECT_EQ(std::bit_cast<uint32_t>(out[0]), 0x80000000u);
  EXPECT_EQ(out[1], inf);
  EXPECT_TRUE(out[2] != out[2]);
  EXPECT_EQ(std::bit_cast<uint32_t>(out[3]), 1u);  // a subnormal is kept
}

TEST(CpuShared, AWorkspaceThatDoesNotFitItsAreaIsNamed) {
  auto group = Group::Create(testing::Options(1, 1, RankMode::kThread));
  ASSERT_TRUE(group.ok());
  Status large = CpuShared::Create((*group)->shared(), 8, size_t{1} << 20).status();
  EXPECT_EQ(large.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(large.message().find("8 partials of 1048576 elements"), std::string::npos) << large.message();
  EXPECT_FALSE(CpuShared::Create((*group)->shared(), 9, 1).ok());
  EXPECT_FALSE(CpuShared::Create((*group)->shared(), 8, ~size_t{0}).ok());
}

}  // namespace
}  // namespace lockstep::comm
