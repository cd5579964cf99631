// The tokenizer of the test model's own file against Hugging Face's ids (tests/golden/tokenizer_smollm.json).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/env.h"
#include "engine/load_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::tokenizer {
namespace {

std::string ModelPath() {
  const std::string& path = Env::Get().test_model;
  return path.empty() ? std::string(LS_SOURCE_DIR) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf" : path;
}

TEST(TokenizerModel, SmolLm2GivesTheGoldenIds) {
  auto spec = engine::LoadTokenizerSpec(ModelPath());
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->pre, "smollm");
  auto t = Tokenizer::Create(std::move(spec).value());
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ((*t)->vocab_size(), 49152);
  EXPECT_EQ((*t)->eos_ids(), (std::vector<int32_t>{0, 2}));  // <|endoftext|>, <|im_end|>

  std::ifstream file(std::string(LS_SOURCE_DIR) + "/tests/golden/tokenizer_smollm.json");
  const auto cases = nlohmann::json::parse(file).at("cases");
  for (const auto& c : cases) {
    const std::string text = c.at("text");
    const auto ids = (*t)->Encode(text, {.parse_special = c.at("parse_special")}).value();
    EXPECT_EQ(ids, c.at("ids").get<std::vector<int32_t>>()) << text;
  }
}

}  // namespace
}  // namespace lockstep::tokenizer
