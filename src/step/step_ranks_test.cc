// Ranks never change a number, for models of random shape; and a number that is not finite is named, not used.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <new>
#include <random>
#include <thread>

#include "comm/test_util.h"
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
    const char* archs[] = {"llama", "qwen2", "qwen3"};
    return fmt::format(
        "seed={}, layers=1, heads={}, kv_heads={}, head_dim={}, hidden={}, ffn={}, vocab={}, tied={}, "
        "tokenizer=False, dtype='{}', arch='{}'",
        seed, heads, kv_heads, head_dim, hidden, ffn, vocab, seed % 2 ? "True" : "False", type, archs[seed % 3]);
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

// A file whose output layer has more rows than its tokenizer has ids: the rows behind are padding, whatever they hold.
// The bounds cut a rank's part in two, and leave the last rank of two without an id to choose.
TEST(Ranks, IdsBehindTheVocabularyAreNeverSampled) {
  const std::string path = TinyModel("seed=6, layers=1, tied=False");
  for (int bound : {200, 40}) {
    const std::vector<int32_t> tokens = SomeTokens(60, bound, 8);
    for (int tp : {1, 2}) {
      for (float temperature : {0.0f, 0.9f}) {
        SCOPED_TRACE(fmt::format("{} ids, tp {}, temperature {}", bound, tp, temperature));
        int num_behind = 0;
        std::vector<int32_t> sampled[2];
        for (int num_tokens : {0, bound}) {
          StepOptions options;
          options.tp = tp;
          options.num_tokens = num_tokens;
          Session session(path, options);
          for (size_t at = 0; at < tokens.size(); at += 4) {
            session.AddChain(0, std::span(tokens).subspan(at, 4), static_cast<int>(at));
            session.runner().input().sequences[0].sampling.temperature = temperature;
            session.Run();
            for (int i = 0; i < 4; ++i) {
              const int32_t token = session.runner().output().tokens[i];
              if (num_tokens == 0) num_behind += token >= bound;
              if (num_tokens == 0) continue;
              ASSERT_GE(token, 0);
              ASSERT_LT(token, bound);
              const std::vector<float> logits = session.Logits(i);
              if (temperature == 0) {
                EXPECT_EQ(token, std::max_element(logits.begin(), logits.begin() + bound) - logits.begin());
              }
            }
          }
        }
        EXPECT_GT(num_behind, 5);  // else nothing was kept from being sampled
      }
    }
  }
}

// Rank 0 alone finds its tensors: what every other thread asks for is out of memory.
class FailsOffTheFirstThread : public model::WeightSource {
 public:
  explicit FailsOffTheFirstThread(std::unique_ptr<model::WeightSource> real)
      : real_(std::move(real)), pid_(getpid()), thread_(std::this_thread::get_id()) {}
  const model::ModelConfig& config() const override { return real_->config(); }
  Result<model::TensorRef> Get(std::string_view name) const override {
    if (getpid() != pid_ || std::this_thread::get_id() != thread_) throw std::bad_alloc();
    return real_->Get(name);
  }
  void Fetch(std::span<const uint8_t> data) const override { real_->Fetch(data); }
  void Drop(std::span<const uint8_t> data) const override { real_->Drop(data); }
  std::string fingerprint() const override { return real_->fingerprint(); }

 private:
  std::unique_ptr<model::WeightSource> real_;
  pid_t pid_;
  std::thread::id thread_;
};

// The failing rank may be gone before the others have read its vote, and they must still report its reason, not that it
// left. Many times, since it is a race.
TEST(Ranks, ASetUpThatFailsOnOneRankAlwaysGivesItsOwnReason) {
  const std::string path = TinyModel("seed=3, layers=1, vocab=300");
  for (comm::RankMode mode : comm::testing::Modes()) {
    for (int i = 0; i < 60; ++i) {
      auto source = model::OpenGgufWeights(path);
      ASSERT_TRUE(source.ok());
      StepOptions options;
      options.context = 32;
      options.tp = 2;
      options.threads = 1 + i % 2;
      options.rank_mode = mode;
      options.oversubscribed = i % 3 == 0;
      auto runner = StepRunner::Create(std::make_shared<FailsOffTheFirstThread>(std::move(source).value()), options);
      ASSERT_FALSE(runner.ok());
      ASSERT_EQ(runner.status().code(), StatusCode::kOutOfMemory) << i << ": " << runner.status().message();
      ASSERT_EQ(runner.status().message(), "rank 1: no memory for the buffers of a step") << i;
    }
  }
}

// Under the thread sanitizer: the members write their times after the last meeting of a step, and here the leader reads
// them at once.
TEST(Ranks, TimesCanBeTakenBetweenAnyTwoSteps) {
  StepOptions options;
  options.tp = 2;
  options.threads = 2;
  Session session(TinyModel("seed=3, layers=1, vocab=300"), options);
  const std::vector<int32_t> tokens = SomeTokens(30, 300, 2);
  for (int n : {1, 3, 2}) {
    session.Feed(0, tokens, 0, n);
    const std::vector<trace::StepBreakdown> taken = session.runner().TakeBreakdowns();
    ASSERT_EQ(taken.size(), 4u);
    for (const trace::StepBreakdown& b : taken) {
      EXPECT_EQ(b.num_steps, uint64_t(30 / n));
      EXPECT_GT(b.ticks[size_t(trace::Owner::kMatmul)], 0u);
    }
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

// A head whose squares overflow has a finite norm, namely zero: it must be found all the same, and on every rank.
TEST(NotFinite, AHeadNormThatOverflows) {
  for (const char* tensor : {"blk.1.attn_q.weight", "blk.1.attn_k.weight"}) {
    const std::string edit = fmt::format(
        "for i, (name, dims, kind, raw) in enumerate(tensors):\n"
        "    if name == '{}': tensors[i] = (name, dims, kind, struct.pack('<f', 1e30) + raw[4:])\n",
        tensor);
    const std::string path = TinyModel("seed=4, layers=3, tied=False, arch='qwen3'", edit);
    for (int tp : {1, 2}) {
      StepOptions options;
      options.tp = tp;
      options.kv_dtype = DType::kF32;
      Session session(path, options);
      session.AddChain(0, SomeTokens(3, session.vocab(), 1), 0);
      session.Run();
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(session.runner().output().tokens[i], -1) << tensor << " tp " << tp;
        EXPECT_EQ(session.runner().output().bad_layer[i], 1) << tensor << " tp " << tp;
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
