#include "model/inspect.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/formats/gguf.h"

namespace lockstep::model {
namespace {

using Json = nlohmann::json;

const std::string kFolder = std::string(LS_SOURCE_DIR) + "/tests/data/gguf/";

Json Inspect(const std::string& name, const InspectOptions& options = {}) {
  auto text = InspectJson(kFolder + name, options);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? Json::parse(*text, nullptr, false) : Json();
}

TEST(Inspect, HasTheKeysOfTheContract) {
  Json out = Inspect("model_ok.gguf");
  for (const char* key : {"path", "format", "arch", "config", "tensors", "tokenizer", "shards", "kv_bytes_per_token"}) {
    EXPECT_TRUE(out.contains(key)) << key;
  }
  EXPECT_EQ(out["format"], "gguf");
  EXPECT_EQ(out["arch"], "llama");
  EXPECT_EQ(out["config"]["num_heads"], 2);
  EXPECT_EQ(out["kv_bytes_per_token"], 16);
  EXPECT_EQ(out["tensors"].size(), 11u);
  EXPECT_EQ(out["tensors"][0]["name"], "token_embd.weight");
  EXPECT_EQ(out["tensors"][0]["type"], "F16");
  EXPECT_EQ(out["tensors"][0]["shape"], Json({4, 8}));
  EXPECT_EQ(out["tensors"][0]["bytes"], 64);
  EXPECT_TRUE(out["tokenizer"]["model"].is_null());
}

TEST(Inspect, ShowsFilesThatCannotRun) {
  Json mamba = Inspect("config_arch_mamba.gguf");
  EXPECT_EQ(mamba["arch"], "mamba");
  EXPECT_TRUE(mamba["config"].is_null());
  EXPECT_NE(std::string(mamba["config_error"]).find("mamba is not built"), std::string::npos);
  EXPECT_EQ(mamba["tensors"].size(), 11u);
  Json q3_k = Inspect("tensor_no_kernel_q3_k.gguf");
  EXPECT_EQ(q3_k["tensors"][0]["type"], "Q3_K");
  Json empty = Inspect("header_nothing_ok.gguf");
  EXPECT_TRUE(empty["arch"].is_null());
  EXPECT_EQ(empty["tensors"].size(), 0u);
}

TEST(Inspect, ShowsAFileWithAVocabularyOnly) {
  Json out = Inspect("vocabulary_only_ok.gguf");
  EXPECT_EQ(out["arch"], "gpt2");
  EXPECT_EQ(out["tokenizer"]["model"], "gpt2");
  EXPECT_EQ(out["tokenizer"]["pre"], "gpt-2");
  EXPECT_EQ(out["tokenizer"]["vocab"], 4);
  EXPECT_TRUE(out["kv_bytes_per_token"].is_null());
}

TEST(Inspect, TakesShardsFromTheCaller) {
  InspectOptions options;
  options.shards_json = [](const ModelConfig& c) { return "{\"1\": " + std::to_string(c.hidden) + "}"; };
  EXPECT_EQ(Inspect("model_ok.gguf", options)["shards"]["1"], 8);
  options.shards_json = [](const ModelConfig&) { return std::string("{"); };
  EXPECT_TRUE(Inspect("model_ok.gguf", options)["shards"].is_null());
}

TEST(Inspect, TheTableHoldsNoControlCharacters) {
  auto text = InspectText(kFolder + "model_q4_1_ok.gguf");
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text->find("blk.0.attn_q.weight"), std::string::npos);
  EXPECT_NE(text->find("[32, 32]"), std::string::npos);
  for (char c : *text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f));
}

}  // namespace
}  // namespace lockstep::model
