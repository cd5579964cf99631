#include "tokenizer/pre_split.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::tokenizer {
namespace {

using Words = std::vector<std::string>;

Words Split(PreTokenizer kind, std::string_view text) {
  std::vector<std::string_view> words;
  PreSplit(kind, text, &words);
  return Words(words.begin(), words.end());
}

TEST(PreSplit, Gpt2) {
  auto split = [](std::string_view text) { return Split(PreTokenizer::kGpt2, text); };
  EXPECT_EQ(split("Hello world 123!"), (Words{"Hello", " world", " 123", "!"}));
  EXPECT_EQ(split("I'm DON'T 'sell"), (Words{"I", "'m", " DON", "'", "T", " '", "sell"}));
  EXPECT_EQ(split("'sell"), (Words{"'s", "ell"}));
  EXPECT_EQ(split("hi   there"), (Words{"hi", "  ", " there"}));
  EXPECT_EQ(split("hi   "), (Words{"hi", "   "}));
  EXPECT_EQ(split("a\r\n\r\nb"), (Words{"a", "\r\n\r", "\n", "b"}));
  EXPECT_EQ(split("a\u00a0\u00a0b"), (Words{"a", "\u00a0", "\u00a0", "b"}));
  EXPECT_EQ(split("e\u0301a"), (Words{"e", "\u0301", "a"}));
  EXPECT_EQ(split(""), Words{});
}

TEST(PreSplit, SmolLmCutsAtEveryDigitFirst) {
  auto split = [](std::string_view text) { return Split(PreTokenizer::kSmolLm, text); };
  EXPECT_EQ(split("3333+7"), (Words{"3", "3", "3", "3", "+", "7"}));
  EXPECT_EQ(split("4 \u00bd months"), (Words{"4", " ", "\u00bd", " months"}));
  EXPECT_EQ(split("a  1"), (Words{"a", "  ", "1"}));  // the digit ends the text before it
  EXPECT_EQ(split("!\U00011DE0!"), (Words{"!", "\U00011DE0", "!"}));
}

TEST(PreSplit, Llama) {
  auto split = [](std::string_view text) { return Split(PreTokenizer::kLlamaBpe, text); };
  EXPECT_EQ(split("1234567"), (Words{"123", "456", "7"}));
  EXPECT_EQ(split("DON'T it'\u017F"), (Words{"DON", "'T", " it", "'\u017F"}));
  EXPECT_EQ(split("'Really 'LLama"), (Words{"'Re", "ally", " '", "LLama"}));
  EXPECT_EQ(split("(x):\n\nif"), (Words{"(x", "):\n\n", "if"}));
  EXPECT_EQ(split("a\n \n  b"), (Words{"a", "\n \n", " ", " b"}));
  EXPECT_EQ(split("\tx \t1"), (Words{"\tx", " ", "\t", "1"}));
  EXPECT_EQ(split("\nx"), (Words{"\n", "x"}));
  EXPECT_EQ(split("hi   "), (Words{"hi", "   "}));
  EXPECT_EQ(split("\u00a0!"), (Words{"\u00a0", "!"}));
}

TEST(PreSplit, Qwen2TakesDigitsOneByOne) {
  EXPECT_EQ(Split(PreTokenizer::kQwen2, "a 12"), (Words{"a", " ", "1", "2"}));
}

TEST(PreSplit, InvalidBytesAreOrdinaryCharactersAndNothingIsLost) {
  const std::string text = "a\xFF\xC3 \xE2\x82z\n\x80";
  for (PreTokenizer kind :
       {PreTokenizer::kGpt2, PreTokenizer::kSmolLm, PreTokenizer::kLlamaBpe, PreTokenizer::kQwen2}) {
    std::string joined;
    for (const std::string& word : Split(kind, text)) joined += word;
    EXPECT_EQ(joined, text);
  }
  EXPECT_EQ(Split(PreTokenizer::kGpt2, "a\xFF\xC3"), (Words{"a", "\xFF\xC3"}));
}

TEST(PreSplit, UnknownNameListsTheKnownOnes) {
  const auto kind = ParsePreTokenizer("tekken");
  ASSERT_FALSE(kind.ok());
  EXPECT_EQ(kind.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(kind.status().message(),
            "tokenizer.ggml.pre: \"tekken\" is not supported (supported: gpt-2, llama-bpe, qwen2, "
            "smollm)");
}

}  // namespace
}  // namespace lockstep::tokenizer
