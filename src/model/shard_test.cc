#include "model/shard.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep::model {
namespace {

ModelConfig Config(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t ffn, uint32_t vocab) {
  ModelConfig c;
  c.num_heads = heads;
  c.num_kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.ffn = ffn;
  c.vocab = vocab;
  return c;
}

TEST(ShardPlan, NineHeadsOverTwoRanksAreFiveAndFourAndShareAKvHead) {
  auto plan = MakeShardPlan(Config(9, 3, 64, 1536, 49152), 2);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->ranks[0].q_heads, (UnitRange{0, 5}));
  EXPECT_EQ(plan->ranks[1].q_heads, (UnitRange{5, 9}));
  EXPECT_EQ(plan->ranks[0].kv_heads, (UnitRange{0, 2}));
  EXPECT_EQ(plan->ranks[1].kv_heads, (UnitRange{1, 3}));
  EXPECT_EQ(plan->ranks[1].ffn, (UnitRange{768, 1536}));
}

TEST(ShardPlan, RandomModelsAreCoveredExactlyOnceOrRefusedWithTheSizesThatWork) {
  std::mt19937 rng(11);
  auto pick = [&rng](uint32_t lo, uint32_t hi) { return lo + static_cast<uint32_t>(rng() % (hi - lo + 1)); };
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    uint32_t kv = pick(1, 8), heads = kv * pick(1, 7), head_dim = 16 * pick(1, 8);
    ModelConfig c = Config(heads, kv, head_dim, pick(1, 3000), pick(16, 5000));
    const int world = static_cast<int>(pick(1, 8));
    auto plan = MakeShardPlan(c, world);
    if (!plan.ok()) {
      ++refused;
      EXPECT_NE(plan.status().message().find("can be cut for --tp 1"), std::string::npos) << plan.status().message();
      EXPECT_EQ(SupportedWorldSizes(c).find(std::to_string(world)), std::string::npos);
      continue;
    }
    int head = 0, ffn = 0, vocab = 0;
    const int group = static_cast<int>(heads / kv);
    for (const RankShard& r : plan->ranks) {
      EXPECT_EQ(r.q_heads.begin, head);
      EXPECT_EQ(r.ffn.begin, ffn);
      EXPECT_EQ(r.vocab.begin, vocab);
      EXPECT_GT(r.q_heads.count(), 0);
      EXPECT_GT(r.ffn.count(), 0);
      EXPECT_EQ(r.q_heads.begin * static_cast<int>(head_dim) % 32, 0);
      for (int q = r.q_heads.begin; q < r.q_heads.end; ++q) {
        EXPECT_GE(q / group, r.kv_heads.begin);
        EXPECT_LT(q / group, r.kv_heads.end);
      }
      head = r.q_heads.end;
      ffn = r.ffn.end;
      vocab = r.vocab.end;
    }
    EXPECT_EQ(head, static_cast<int>(heads));
    EXPECT_EQ(ffn, static_cast<int>(c.ffn));
    EXPECT_EQ(vocab, static_cast<int>(c.vocab));
  }
  EXPECT_GT(refused, 50);
}

TEST(ShardPlan, AnImpossibleCutNamesTheQuantity) {
  auto four_heads = MakeShardPlan(Config(4, 4, 64, 1536, 1000), 8);
  EXPECT_NE(four_heads.status().message().find("4 query heads"), std::string::npos);
  EXPECT_NE(four_heads.status().message().find("--tp 1, 2, 3, 4"), std::string::npos) << four_heads.status().message();
  EXPECT_EQ(MakeShardPlan(Config(9, 3, 64, 1536, 1000), 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(MakeShardPlan(Config(9, 3, 64, 1536, 1000), 9).ok());
}

}  // namespace
}  // namespace lockstep::model
