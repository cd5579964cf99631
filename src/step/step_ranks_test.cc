// Ranks never change a number, for models of random shape; and a number that is not finite is named, not used.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <random>

#include "model/shard.h"
#include "step/test_util.h"

namespace lockstep::step {
namespace {

using testing::SameBits;
using testing::Session;
using testing::SomeTokens;
using testing::TinyModel;

struct Shape {
  int heads, kv_heads, head_dim, hidden, ffn, vocab;
  std::string type;

  std::string Fields(int seed) const {
    return fmt::format(
        "seed={}, layers=1, heads={}, kv_heads={}, head_dim={}, hidden={}, ffn={}, vocab={}, tied={}, "
        "tokenizer=False, dtype='{}'",
        seed, heads, kv_heads, head_dim, hidden, ffn, vocab, seed % 2 ? "True" : "False", type);
  }
};

// Heads that no world size divides, groups that are split between ranks, an ffn of few or odd blocks, and with plain
// weights an ffn that is no multiple of a block.
Shape RandomShape(std::mt19937& rng, int index) {
  auto pick = [&rng](std::initializer_list<int> values) { return values.begin()[rng() % values.size()]; };
  const char* types[] = {"Q4_1", "F32", "Q8_0", "BF16", "Q5_1", "Q5_K_M", "Q4_0", "F16", "Q4_K_M", "Q5_0"};
  Shape s;
  s.type = types[index % 10];
  const bool quantised = s.type[0] == 'Q';
  s.kv_heads = pick({1, 2, 3, 5});
  s.heads = s.kv_heads * pick({1, 2, 3, 4});
  s.head_dim = pick({16, 32, 48, 64});
  if (quantised && s.heads * s.head_dim % 32 != 0) s.head_dim *= 2;
  s.hidden = quantised ? 32 * pick({1, 2, 3}) : 16 * pick({1, 3, 5});
  s.ffn = quantised ? 32 * pick({1, 5, 8, 11}) : 4 * pick({17, 40, 63, 90});
  s.vocab = pick({17, 100, 257});
  if (s.type.find('K') != std::string::npos) {  // superblocks, in the attention output and below the ranks' borders
    s.hidden = 256;
    s.ffn = 256 * pick({1, 3});
    if (256 % (16 * s.heads) == 0) s.head_dim = 256 / s.heads;
  }
  return s;
}

// Sizes that other engines stumbled over: 52 query heads on 8 ranks, and more ranks than kv heads.
const Shape kKnown[] = {{52, 4, 16, 64, 256, 100, "Q4_1"}, {32, 8, 16, 64, 256, 100, "F32"}};

TEST(Ranks, RandomModelsGiveTheSameBitsOnAnyNumber) {
  std::mt19937 rng(2024);
  int worlds_tried = 0, widest = 0;
  for (int index = 0; index < 13; ++index) {
    const Shape shape = index < 2 ? kKnown[index] : RandomShape(rng, index);
    const std::string fields = shape.Fields(index);
    SCOPED_TRACE(fields);
    const std::string path = TinyModel(fields);
    std::vector<std::vector<float>> one;
    const std::vector<int32_t> tokens = SomeTokens(13, shape.vocab, 6);
    const model::ModelConfig config = (*model::OpenGgufWeights(path))->config();
    ASSERT_EQ(int(config.num_heads), shape.heads);
    for (int world = 1; world <= 8; ++world) {
      if (!model::MakeShardPlan(config, world).ok()) continue;
      StepOptions options;
      options.tp = world;
      options.threads = 1 + int(rng() % 2);
      Session session(path, options);
      auto rows = session.Feed(0, tokens, 0, 1 + int(rng() % 13));
      if (world == 1) one = rows;
      ASSERT_EQ(rows.size(), tokens.size());
      for (size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(SameBits(one[i], rows[i])) << "tp " << world << " row " << i;
      ++worlds_tried;
      widest = std::max(widest, world);
    }
  }
  EXPECT_GE(worlds_tried, 40);
  EXPECT_EQ(widest, 8);
}

// A different number of leaves would be a different sum: the law's tree must not follow the world size.
TEST(Ranks, AWorldThatDoesNotFitIsRefusedByName) {
  auto source = model::OpenGgufWeights(TinyModel("seed=3, heads=2, kv_heads=1, ffn=64"));
  ASSERT_TRUE(source.ok());
  StepOptions options;
  options.context = 32;
  options.tp = 3;
  auto runner = StepRunner::Create(std::move(source).value(), options);
  ASSERT_FALSE(runner.ok());
  EXPECT_EQ(runner.status().code(), StatusCode::kInvalidArgument);
  for (const char* word : {"--tp 3", "head", "can be cut for --tp 1"}) {
    EXPECT_NE(runner.status().message().find(word), std::string::npos) << runner.status().message();
  }
}

// Overwrites the first weight of a tensor of F32 with NaN.
std::string NanIn(const std::string& tensor) {
  return fmt::format(
      "for i, (name, dims, kind, raw) in enumerate(tensors):\n"
      "    if name == '{}': tensors[i] = (name, dims, kind, struct.pack('<f', float('nan')) + raw[4:])\n",
      tensor);
}

TEST(NotFinite, TokenIsMinusOneAndTheLayerIsNamed) {
  struct Case {
    const char* tensor;
    int layer;  // the first whose norm meets it; 3 = the final norm or the logits
  };
  for (const Case& c : {Case{"blk.0.attn_output.weight", 0}, Case{"blk.1.attn_v.weight", 1},
                        Case{"blk.1.ffn_up.weight", 2}, Case{"blk.2.ffn_down.weight", 3}, Case{"output.weight", 3}}) {
    const std::string path = TinyModel("seed=4, layers=3, tied=False", NanIn(c.tensor));
    for (float temperature : {0.0f, 0.8f}) {
      for (int tp : {1, 2}) {
        StepOptions options;
        options.tp = tp;
        Session session(path, options);
        session.AddChain(0, SomeTokens(5, session.vocab(), 1), 0);
        session.runner().input().sequences[0].sampling.temperature = temperature;
        session.Run();
        for (int i = 0; i < 5; ++i) {
          EXPECT_EQ(session.runner().output().tokens[i], -1) << c.tensor << " tp " << tp << " temp " << temperature;
          EXPECT_EQ(session.runner().output().bad_layer[i], c.layer) << c.tensor << " tp " << tp;
        }
      }
    }
  }
}

// A token whose embedding is not finite spoils its own row, and no other.
TEST(NotFinite, OneRowOnly) {
  const std::string edit =
      "name, dims, kind, raw = tensors[0]\nat = 9 * dims[0] * 4\n"
      "tensors[0] = (name, dims, kind, raw[:at] + struct.pack('<f', float('inf')) + raw[at + 4:])\n"
      "tensors.append(('output.weight', dims, kind, raw))\n";
  const std::string path = TinyModel("seed=5", edit);
  Session session(path);
  DraftTree tree;
  tree.Reset(1);
  tree.Add(0, 9);  // not finite
  tree.Add(0, 10);
  tree.Add(2, 11);
  session.Add(0, tree, 0);
  session.Run();
  EXPECT_EQ(session.runner().output().tokens[1], -1);
  for (int row : {0, 2, 3}) {
    EXPECT_GE(session.runner().output().tokens[row], 0) << row;
    EXPECT_LT(session.runner().output().tokens[row], 320) << row;
  }
  WalkResult walk = Walk(tree, std::span(session.runner().output().tokens, 4));
  EXPECT_GE(walk.num_emitted, 1);
}

}  // namespace
}  // namespace lockstep::step
