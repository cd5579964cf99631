#include "model/config.h"

#include <gtest/gtest.h>

#include "model/formats/gguf.h"
#include "model/formats/weight_source.h"

namespace lockstep::model {
namespace {

const std::string kFolder = std::string(LS_SOURCE_DIR) + "/tests/data/gguf/";

ModelConfig Config(const std::string& name) {
  auto source = OpenGgufWeights(kFolder + name);
  EXPECT_TRUE(source.ok()) << source.status().message();
  return source.ok() ? (*source)->config() : ModelConfig{};
}

std::string Print(const std::string& name) {
  auto source = OpenGgufWeights(kFolder + name);
  EXPECT_TRUE(source.ok()) << source.status().message();
  return source.ok() ? (*source)->fingerprint() : "";
}

TEST(ModelConfig, ReadsTheTinyModel) {
  ModelConfig c = Config("model_ok.gguf");
  EXPECT_EQ(c.arch, "llama");
  EXPECT_EQ(c.num_layers, 1u);
  EXPECT_EQ(c.hidden, 8u);
  EXPECT_EQ(c.ffn, 8u);
  EXPECT_EQ(c.num_heads, 2u);
  EXPECT_EQ(c.num_kv_heads, 1u);
  EXPECT_EQ(c.head_dim, 4u);
  EXPECT_EQ(c.vocab, 4u);
  EXPECT_EQ(c.context_length, 32u);
  EXPECT_FLOAT_EQ(c.rms_norm_eps, 1e-5f);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.rope_scaling, RopeScaling::kNone);
  EXPECT_TRUE(c.rope_interleaved);
  EXPECT_EQ(KvBytesPerToken(c, 2), 2u * 1 * 1 * 4 * 2);
}

// Case C5: GGUF has no flag; the head in the file is used, and a missing one means the embedding.
TEST(ModelConfig, AMissingHeadMeansTiedEmbeddings) {
  EXPECT_TRUE(Config("model_ok.gguf").tied_embeddings);
  EXPECT_FALSE(Config("model_untied_ok.gguf").tied_embeddings);
}

TEST(ModelConfig, HeadsMayBeWiderThanTheHiddenSize) {
  ModelConfig c = Config("model_wide_heads_ok.gguf");
  EXPECT_EQ(c.head_dim, 6u);
  EXPECT_NE(c.num_heads * c.head_dim, c.hidden);
}

TEST(ModelConfig, RopeScalings) {
  ModelConfig linear = Config("model_linear_rope_ok.gguf");
  EXPECT_EQ(linear.rope_scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear.rope_factor, 2.0);
  ModelConfig factors = Config("model_rope_freqs_ok.gguf");
  EXPECT_EQ(factors.rope_scaling, RopeScaling::kFreqFactors);
  EXPECT_EQ(factors.rope_freq_factors, (std::vector<float>{1, 8}));
}

TEST(Fingerprint, DependsOnTheModelAndNotOnTheFile) {
  std::string print = Print("model_ok.gguf");
  EXPECT_EQ(print.size(), 16u);
  EXPECT_EQ(print, Print("split_unsplit_ok.gguf"));
  EXPECT_EQ(print, Print("split_ok-00002-of-00003.gguf"));
  EXPECT_NE(print, Print("model_untied_ok.gguf"));
  EXPECT_NE(print, Print("model_bf16_ok.gguf"));
  EXPECT_NE(print, Print("model_linear_rope_ok.gguf"));
}

}  // namespace
}  // namespace lockstep::model
