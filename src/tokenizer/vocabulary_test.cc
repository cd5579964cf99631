#include "tokenizer/vocabulary.h"

#include <gtest/gtest.h>

#include <functional>

#include "tokenizer/test_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::tokenizer {
namespace {

// The error after `change`, which must be one line.
Status ErrorAfter(const std::function<void(TokenizerSpec*)>& change) {
  TokenizerSpec spec = SmallSpec();
  change(&spec);
  const auto result = Tokenizer::Create(std::move(spec));
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().message().find('\n'), std::string::npos);
  EXPECT_LT(result.status().message().size(), 300u);
  return result.status();
}

TEST(Vocabulary, UnsupportedModelsNameTheSupportedOnes) {
  const Status model = ErrorAfter([](auto* s) { s->model = "llama"; });
  EXPECT_EQ(model.code(), StatusCode::kUnsupported);
  EXPECT_EQ(model.message(), "tokenizer.ggml.model: \"llama\" is not supported (supported: gpt2)");
  EXPECT_EQ(ErrorAfter([](auto* s) { s->pre = ""; }).code(), StatusCode::kUnsupported);
}

TEST(Vocabulary, ContradictionsNameTheKeyAndTheValue) {
  auto message = [](const std::function<void(TokenizerSpec*)>& change) {
    const Status status = ErrorAfter(change);
    EXPECT_EQ(status.code(), StatusCode::kCorruptFile);
    return status.message();
  };
  EXPECT_EQ(message([](auto* s) { s->tokens.clear(); }), "tokenizer.ggml.tokens: no tokens");
  EXPECT_EQ(message([](auto* s) { s->tokens[258] = "he"; }), "tokenizer.ggml.tokens[258]: \"he\" is also token 256");
  EXPECT_EQ(message([](auto* s) { s->token_types.pop_back(); }),
            "tokenizer.ggml.token_type: 263 entries for the 264 tokens in tokenizer.ggml.tokens");
  EXPECT_EQ(message([](auto* s) { s->token_types[5] = 7; }), "tokenizer.ggml.token_type[5]: 7 is not a type (1 to 6)");
  EXPECT_EQ(message([](auto* s) { s->token_types[5] = 0; }), "tokenizer.ggml.token_type[5]: 0 is not a type (1 to 6)");
  EXPECT_EQ(message([](auto* s) { s->merges[1] = "l x\n"; }),
            "tokenizer.ggml.merges[1]: \"l x\\x0a\": \"x\\x0a\" is not in tokenizer.ggml.tokens");
  EXPECT_EQ(message([](auto* s) { s->merges[1] = "l a"; }),
            "tokenizer.ggml.merges[1]: \"l a\": \"la\" is not in tokenizer.ggml.tokens");
  for (const char* merge : {"", " ", "ll", "l ", " l", "l l l", "l  l"}) {
    EXPECT_NE(message([merge](auto* s) { s->merges[1] = merge; }).find("is not two tokens"), std::string::npos);
  }
  for (int32_t id : {264, -2, 2147483647, -2147483647 - 1}) {
    const std::string text = std::to_string(id) + " is not an id of the 264 tokens in tokenizer.ggml.tokens";
    EXPECT_EQ(message([id](auto* s) { s->bos_id = id; }), "tokenizer.ggml.bos_token_id: " + text);
    EXPECT_EQ(message([id](auto* s) { s->eos_id = id; }), "tokenizer.ggml.eos_token_id: " + text);
    EXPECT_EQ(message([id](auto* s) { s->unk_id = id; }), "tokenizer.ggml.unknown_token_id: " + text);
    EXPECT_EQ(message([id](auto* s) { s->eot_id = id; }), "tokenizer.ggml.eot_token_id: " + text);
    EXPECT_EQ(message([id](auto* s) { s->extra_eos_ids = {1, id}; }), "extra_eos_ids: " + text);
  }
  EXPECT_NE(message([](auto* s) { s->add_bos = true, s->bos_id = -1; }).find("add_bos_token"), std::string::npos);
  EXPECT_NE(message([](auto* s) { s->add_eos = true, s->eos_id = -1; }).find("add_eos_token"), std::string::npos);
}

TEST(Vocabulary, AnEndlessControlTokenIsRefused) {
  const Status status = ErrorAfter([](auto* s) { s->tokens[kEnd] = s->Own(std::string(1 << 20, 'a')); });
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("tokenizer.ggml.tokens[261]"), std::string::npos);
}

TEST(Vocabulary, TypesMayBeAbsent) {
  TokenizerSpec spec = SmallSpec();
  spec.token_types.clear();
  EXPECT_TRUE(Tokenizer::Create(spec).ok());
}

TEST(Vocabulary, SeveralIdsEndAnAnswer) {
  TokenizerSpec spec = SmallSpec();
  spec.eos_id = 7;
  spec.eot_id = 9;
  spec.extra_eos_ids = {9, 3};
  const auto t = Tokenizer::Create(spec);
  ASSERT_TRUE(t.ok());
  EXPECT_EQ((*t)->eos_ids(), (std::vector<int32_t>{3, 7, 9, kEnd}));  // <|im_end|> by its name
  EXPECT_TRUE((*t)->IsEos(kEnd));
  EXPECT_FALSE((*t)->IsEos(kStart));
  EXPECT_FALSE((*t)->IsEos(-1));
}

TEST(Vocabulary, NoMergeMakesAControlToken) {
  TokenizerSpec spec = SmallSpec();
  spec.token_types[kHello] = 3;
  const auto t = Tokenizer::Create(spec);
  ASSERT_TRUE(t.ok());
  EXPECT_EQ((*t)->Encode("hello").value(), (std::vector<int32_t>{258, 'o'}));
  EXPECT_EQ((*t)->Encode("hello", {.parse_special = true}).value(), (std::vector<int32_t>{kHello}));
}

}  // namespace
}  // namespace lockstep::tokenizer
