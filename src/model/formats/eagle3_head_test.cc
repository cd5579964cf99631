// Heads of every layout load, with the values that their files hold. Folders with faults: eagle3_corpus_test.cc.
#include "model/formats/eagle3_head.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/pack.h"
#include "model/formats/eagle3_config.h"
#include "model/formats/eagle3_test_util.h"
#include "model/formats/quantise.h"

namespace lockstep::model {
namespace {

using testing::FakeTarget;
using testing::FileTensor;
using testing::HeadFolder;
using testing::HeadShape;

constexpr HeadOptions kAsInFile{.weight_dtype = std::nullopt};

std::unique_ptr<WeightSource> Open(HeadFolder& folder, const WeightSource& target,
                                   const HeadOptions& options = kAsInFile, int num_files = 1, int pad = 0) {
  auto head = OpenEagle3Head(folder.Write(num_files, pad), target, options);
  EXPECT_TRUE(head.ok()) << head.status().message();
  return head.ok() ? std::move(head).value() : nullptr;
}

std::vector<float> Values(const WeightSource& source, const std::string& name) {
  auto t = source.Get(name);
  EXPECT_TRUE(t.ok()) << t.status().message();
  if (!t.ok()) return {};
  std::vector<float> out(t->rows * t->cols);
  kernels::DequantRow(t->dtype, t->data, static_cast<int64_t>(out.size()), out.data());
  return out;
}

void ExpectTensor(const WeightSource& head, const std::string& here, const std::string& in_file,
                  std::vector<uint64_t> shape) {
  SCOPED_TRACE(here);
  auto t = head.Get(here);
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(t->name, here);
  EXPECT_EQ(t->rows, shape.size() == 2 ? shape[0] : 1);
  EXPECT_EQ(t->cols, shape.back());
  const std::vector<float> values = Values(head, here);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], testing::ValueOf(in_file, i)) << i;
}

// Every tensor of the original layout, by the names that the values were made for.
void ExpectAll(const WeightSource& head, const HeadShape& s) {
  const uint64_t h = s.hidden, q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  ExpectTensor(head, "fc.weight", "fc.weight", {h, 3 * s.target_hidden});
  ExpectTensor(head, "blk.0.embd_norm.weight", "midlayer.input_layernorm.weight", {h});
  ExpectTensor(head, "blk.0.hidden_norm.weight", "midlayer.hidden_norm.weight", {h});
  ExpectTensor(head, "blk.0.attn_q.weight", "midlayer.self_attn.q_proj.weight", {q, 2 * h});
  ExpectTensor(head, "blk.0.attn_k.weight", "midlayer.self_attn.k_proj.weight", {kv, 2 * h});
  ExpectTensor(head, "blk.0.attn_v.weight", "midlayer.self_attn.v_proj.weight", {kv, 2 * h});
  ExpectTensor(head, "blk.0.attn_output.weight", "midlayer.self_attn.o_proj.weight", {h, q});
  ExpectTensor(head, "blk.0.ffn_norm.weight", "midlayer.post_attention_layernorm.weight", {h});
  ExpectTensor(head, "blk.0.ffn_gate.weight", "midlayer.mlp.gate_proj.weight", {s.ffn, h});
  ExpectTensor(head, "blk.0.ffn_up.weight", "midlayer.mlp.up_proj.weight", {s.ffn, h});
  ExpectTensor(head, "blk.0.ffn_down.weight", "midlayer.mlp.down_proj.weight", {h, s.ffn});
  ExpectTensor(head, "output_norm.weight", "norm.weight", {h});
}

TEST(Eagle3Head, OriginalLayout) {
  FakeTarget target;
  HeadFolder folder;
  auto head = Open(folder, target);
  ASSERT_TRUE(head);
  ExpectAll(*head, folder.shape);
  ExpectTensor(*head, "output.weight", "lm_head.weight", {32, 64});
  EXPECT_EQ(Values(*head, "token_embd.weight"), Values(target, "token_embd.weight"));
  const ModelConfig& c = head->config();
  EXPECT_EQ(c.arch, "eagle3");
  EXPECT_EQ(c.num_layers, 1u);
  EXPECT_EQ(c.hidden, 64u);
  EXPECT_EQ(c.ffn, 96u);
  EXPECT_EQ(c.num_heads, 4u);
  EXPECT_EQ(c.num_kv_heads, 2u);
  EXPECT_EQ(c.head_dim, 16u);
  EXPECT_EQ(c.vocab, 32u);
  EXPECT_EQ(c.context_length, 2048u);
  EXPECT_EQ(c.rms_norm_eps, 1e-5f);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.rope_scaling, RopeScaling::kNone);
  EXPECT_FALSE(c.rope_interleaved || c.tied_embeddings || c.qkv_bias || c.qk_norm);
  EXPECT_EQ(c.eagle3.target_hidden, 64u);
  EXPECT_EQ(c.eagle3.tap_layers, (std::vector<int>{1, 5, 8}));
  EXPECT_FALSE(c.eagle3.fc_norm || c.eagle3.norm_before_fc || c.eagle3.norm_output || c.eagle3.own_embedding);
  ASSERT_EQ(c.eagle3.draft_to_target.size(), 32u);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(c.eagle3.draft_to_target[static_cast<size_t>(i)], 3 * i + 1);
  EXPECT_EQ(head->fingerprint().size(), 16u);
}

TEST(Eagle3Head, EveryNameOfALayer) {
  FakeTarget target;
  for (const char* prefix : {"", "model."}) {
    for (const char* layer : {"midlayer.", "layers.0."}) {
      SCOPED_TRACE(std::string(prefix) + layer);
      HeadFolder folder;
      folder.Rename([&](const std::string& name) {
        if (name == "d2t" || name == "t2d" || name == "lm_head.weight") return name;
        return prefix + (name.starts_with("midlayer.") ? layer + name.substr(9) : name);
      });
      auto head = Open(folder, target);
      ASSERT_TRUE(head);
      ExpectAll(*head, folder.shape);
    }
  }
}

TEST(Eagle3Head, ShardsAndDataThatIsNotAligned) {
  FakeTarget target;
  for (int num_files : {1, 2, 3}) {
    for (int pad : {0, 1, 3, 7}) {
      for (const char* type : {"BF16", "F16", "F32"}) {
        SCOPED_TRACE(std::string(type) + " files " + std::to_string(num_files) + " pad " + std::to_string(pad));
        HeadFolder folder({}, type);
        auto head = Open(folder, target, kAsInFile, num_files, pad);
        ASSERT_TRUE(head);
        ExpectAll(*head, folder.shape);
        HeadFolder other({}, type);
        auto quantised = Open(other, target, {}, num_files, pad);
        ASSERT_TRUE(quantised);
        EXPECT_EQ(quantised->fingerprint(), head->fingerprint());
        const std::vector<float> exact = Values(*head, "fc.weight"), rounded = Values(*quantised, "fc.weight");
        ASSERT_EQ(exact.size(), rounded.size());
        for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(exact[i], rounded[i], 0.005) << i;
      }
    }
  }
}

TEST(Eagle3Head, OwnEmbeddingOfAnotherWidth) {
  HeadShape s;
  s.target_hidden = 80;
  FakeTarget target(s);
  HeadFolder folder(s);
  folder.PutFloats("embed_tokens.weight", {s.vocab, s.hidden});
  auto head = Open(folder, target, {});
  ASSERT_TRUE(head);
  EXPECT_TRUE(head->config().eagle3.own_embedding);
  EXPECT_EQ(head->config().eagle3.target_hidden, 80u);
  EXPECT_EQ(head->config().hidden, 64u);
  ExpectTensor(*head, "token_embd.weight", "embed_tokens.weight", {96, 64});  // as in the file
  EXPECT_EQ(head->Get("fc.weight")->dtype, DType::kBF16);                     // 240 columns are no whole blocks
  EXPECT_EQ(head->Get("blk.0.attn_q.weight")->dtype, DType::kQ8_0);
  EXPECT_EQ(head->Get("blk.0.hidden_norm.weight")->dtype, DType::kBF16);
}

// A vocabulary that is not cut: draft_vocab_size null, absent or the same; lm_head there or the target's.
TEST(Eagle3Head, WholeVocabulary) {
  HeadShape s;
  s.draft_vocab = s.vocab;
  for (const char* draft_vocab : {"null", "96", ""}) {
    for (bool tied : {true, false}) {
      SCOPED_TRACE(std::string(draft_vocab) + (tied ? " tied" : ""));
      FakeTarget target(s, tied);
      HeadFolder folder(s);
      folder.config["draft_vocab_size"] = draft_vocab;
      if (*draft_vocab == 0) folder.config.erase("draft_vocab_size");
      for (const char* name : {"d2t", "t2d", "lm_head.weight"}) folder.Remove(name);
      auto head = Open(folder, target, {});
      ASSERT_TRUE(head);
      EXPECT_EQ(head->config().vocab, 96u);
      EXPECT_TRUE(head->config().eagle3.draft_to_target.empty());
      EXPECT_FALSE(head->config().tied_embeddings);
      const TensorRef shared = *head->Get("output.weight");
      EXPECT_EQ(shared.name, "output.weight");
      EXPECT_EQ(shared.data, target.Get(tied ? "token_embd.weight" : "output.weight")->data);
      head->Fetch({shared.data, 64});
      head->Drop({shared.data + shared.bytes - 64, 64});
      EXPECT_EQ(target.num_fetched, 1);
      EXPECT_EQ(target.num_dropped, 1);
      const TensorRef own = *head->Get("fc.weight");
      head->Fetch({own.data, static_cast<size_t>(own.bytes)});
      EXPECT_EQ(target.num_fetched, 1);

      HeadFolder with_output(s);
      with_output.config["draft_vocab_size"] = "null";
      for (const char* name : {"d2t", "t2d"}) with_output.Remove(name);
      auto other = Open(with_output, target);
      ASSERT_TRUE(other);
      ExpectTensor(*other, "output.weight", "lm_head.weight", {96, 64});
    }
  }
}

TEST(Eagle3Head, OutputIsTheHeadsOwnEmbeddingWhereTied) {
  HeadShape s;
  s.target_hidden = 80;
  s.draft_vocab = s.vocab;
  FakeTarget target(s);
  HeadFolder folder(s);
  folder.PutFloats("embed_tokens.weight", {s.vocab, s.hidden});
  folder.config["tie_word_embeddings"] = "true";
  for (const char* name : {"d2t", "t2d", "lm_head.weight"}) folder.Remove(name);
  auto head = Open(folder, target, {});
  ASSERT_TRUE(head);
  EXPECT_EQ(head->Get("output.weight")->dtype, DType::kQ8_0);
  EXPECT_EQ(head->Get("token_embd.weight")->dtype, DType::kBF16);
  EXPECT_FALSE(head->config().tied_embeddings);
}

TEST(Eagle3Head, MapsOfTheWholeVocabulary) {
  HeadShape s;
  s.draft_vocab = s.vocab;
  FakeTarget target(s);
  HeadFolder zeros(s);  // as a trainer that never made a map leaves it
  zeros.Put({"d2t", "I64", {96}, std::string(96 * 8, '\0')});
  zeros.Put({"t2d", "BOOL", {96}, std::string(96, '\0')});
  auto head = Open(zeros, target);
  ASSERT_TRUE(head);
  EXPECT_TRUE(head->config().eagle3.draft_to_target.empty());

  HeadFolder turned(s);  // I32, and every token moved by one
  std::vector<int32_t> d2t(96, 1);
  d2t[95] = -95;
  turned.Put({"d2t", "I32", {96}, testing::BytesOf(d2t)});
  turned.Put({"t2d", "BOOL", {96}, std::string(96, '\1')});
  auto other = Open(turned, target);
  ASSERT_TRUE(other);
  ASSERT_EQ(other->config().eagle3.draft_to_target.size(), 96u);
  EXPECT_EQ(other->config().eagle3.draft_to_target[0], 1);
  EXPECT_EQ(other->config().eagle3.draft_to_target[95], 0);
}

TEST(Eagle3Head, NormsOfEagle31AndBiases) {
  FakeTarget target;
  HeadFolder folder;
  folder.config["fc_norm"] = "true";
  folder.config["norm_output"] = "true";
  folder.config["norm_before_fc"] = "true";
  folder.PutFloats("input_norm.weight", {192});
  for (int i = 0; i < 3; ++i) folder.PutFloats("fc_norm." + std::to_string(i) + ".weight", {64});
  folder.PutFloats("fc.bias", {64});
  folder.PutFloats("midlayer.self_attn.q_proj.bias", {64});
  folder.PutFloats("midlayer.self_attn.k_proj.bias", {32});
  folder.PutFloats("midlayer.self_attn.v_proj.bias", {32});
  folder.Put({"midlayer.self_attn.rotary_emb.inv_freq", "F32", {8}, std::string(32, '\0')});  // which nobody reads
  auto head = Open(folder, target);
  ASSERT_TRUE(head);
  ExpectAll(*head, folder.shape);
  const ModelConfig& c = head->config();
  EXPECT_TRUE(c.eagle3.fc_norm && c.eagle3.norm_output && c.eagle3.norm_before_fc && c.qkv_bias);
  ExpectTensor(*head, "fc_input_norm.weight", "input_norm.weight", {192});
  ExpectTensor(*head, "fc_norm.2.weight", "fc_norm.2.weight", {64});
  ExpectTensor(*head, "fc.bias", "fc.bias", {64});
  ExpectTensor(*head, "blk.0.attn_k.bias", "midlayer.self_attn.k_proj.bias", {32});

  HeadFolder older;  // the names of other writers, in eagle_config
  older.config["eagle_config"] = R"({"use_aux_norm": true, "return_hidden_post_norm": true})";
  for (int i = 0; i < 3; ++i) older.PutFloats("model.fc_norm." + std::to_string(i) + ".weight", {64});
  auto other = Open(older, target);
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->config().eagle3.fc_norm && other->config().eagle3.norm_output);
  EXPECT_FALSE(other->config().eagle3.norm_before_fc);
}

TEST(Eagle3Head, TapsByEachConvention) {
  struct Case {
    const char *nested, *top;
    uint32_t layers;
    std::vector<int> taps;
  };
  for (const Case& c : std::vector<Case>{
           {"[1, 14, 26]", "", 30, {1, 14, 26}},    // outputs
           {"", "[2, 15, 27]", 30, {1, 14, 26}},    // boundaries of the same layers
           {"", "", 30, {1, 14, 26}},               // the usual ones
           {"[]", "", 30, {1, 14, 26}},             //
           {"", "", 7, {1, 2, 3}},                  //
           {"", "[24, 30, 36]", 36, {23, 29, 35}},  // the last boundary is the last output
           {"[1, 17, 35]", "[1, 17, 35]", 36, {1, 17, 35}},
           {"", "[29, 2, 16]", 32, {28, 1, 15}},  // in the file's order
       }) {
    HeadShape s;
    s.target_layers = c.layers;
    FakeTarget target(s);
    HeadFolder folder(s);
    const std::string key = R"("eagle_aux_hidden_state_layer_ids": )";
    folder.config["eagle_config"] = *c.nested ? "{" + key + c.nested + "}" : "{}";
    if (*c.top) folder.config["eagle_aux_hidden_state_layer_ids"] = c.top;
    auto head = Open(folder, target);
    ASSERT_TRUE(head);
    EXPECT_EQ(head->config().eagle3.tap_layers, c.taps) << c.nested << c.top;
  }
}

TEST(Eagle3Head, RopeAndDefaults) {
  FakeTarget target;
  HeadFolder linear;
  linear.config["rope_scaling"] = R"({"type": "linear", "factor": 4.0})";
  auto head = Open(linear, target);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->config().rope_scaling, RopeScaling::kLinear);
  EXPECT_EQ(head->config().rope_factor, 4);

  HeadFolder llama3;
  llama3.config["rope_theta"] = "500000.0";
  llama3.config["rope_scaling"] =
      R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                      "original_max_position_embeddings": 64})";
  head = Open(llama3, target);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->config().rope_scaling, RopeScaling::kFreqFactors);
  // Waves of 6.28, 32.4, 167, ... positions: at most 16 are kept, from 64 on they are divided by 8, between blended.
  const std::vector<float>& f = head->config().rope_freq_factors;
  ASSERT_EQ(f.size(), 8u);
  EXPECT_EQ(f[0], 1);
  const double blend = (64 / (2 * 3.14159265358979 * std::pow(500000.0, 1.0 / 8)) - 1) / 3;
  EXPECT_NEAR(f[1], 1 / ((1 - blend) / 8 + blend), 1e-5);
  for (size_t i = 2; i < 8; ++i) EXPECT_EQ(f[i], 8);

  HeadFolder newer;  // as transformers 5 writes it
  newer.config.erase("rope_theta");
  newer.config["rope_parameters"] = R"({"rope_type": "default", "rope_theta": 123456.0})";
  head = Open(newer, target);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->config().rope_theta, 123456);
  EXPECT_EQ(head->config().rope_scaling, RopeScaling::kNone);

  HeadFolder bare;
  for (const char* key : {"rope_theta", "rope_scaling", "rms_norm_eps", "max_position_embeddings", "head_dim",
                          "hidden_act", "num_hidden_layers", "tie_word_embeddings", "architectures", "model_type"}) {
    bare.config.erase(key);
  }
  head = Open(bare, target);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->config().rope_theta, 10000);
  EXPECT_EQ(head->config().rms_norm_eps, 1e-6f);
  EXPECT_EQ(head->config().context_length, 2048u);
  EXPECT_EQ(head->config().head_dim, 16u);
}

TEST(Eagle3Head, QuantisesEveryMatrixToTheTypeAskedFor) {
  FakeTarget target;
  for (DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    HeadFolder folder;
    auto head = Open(folder, target, {.weight_dtype = type});
    ASSERT_TRUE(head);
    for (const char* name :
         {"fc.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight",
          "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight", "output.weight"}) {
      auto t = head->Get(name);
      ASSERT_TRUE(t.ok());
      EXPECT_EQ(t->dtype, type) << name;
      EXPECT_EQ(t->bytes, t->rows * t->cols / 32 * GetDTypeInfo(type).block_bytes) << name;
    }
    ExpectTensor(*head, "output_norm.weight", "norm.weight", {64});
  }
}

TEST(Eagle3Head, FingerprintsTellHeadsApart) {
  FakeTarget target;
  HeadFolder a, same, taps, weights, flag;
  taps.config["eagle_config"] = R"({"eagle_aux_hidden_state_layer_ids": [1, 5, 9]})";
  weights.tensors.back().data[0] ^= 1;
  flag.config["norm_output"] = "true";
  const std::string expected = Open(a, target)->fingerprint();
  EXPECT_EQ(Open(same, target, kAsInFile, 2)->fingerprint(), expected);
  EXPECT_NE(Open(taps, target)->fingerprint(), expected);
  EXPECT_NE(Open(weights, target)->fingerprint(), expected);
  EXPECT_NE(Open(flag, target)->fingerprint(), expected);
}

}  // namespace
}  // namespace lockstep::model
