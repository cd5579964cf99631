#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tokenizer/test_vocabulary.h"

namespace lockstep::tokenizer {
namespace {

using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> Make(TokenizerSpec spec) {
  auto t = Tokenizer::Create(std::move(spec));
  LS_CHECK(t.ok());
  return std::move(t).value();
}

TEST(Tokenizer, ControlTokensOnlyOnRequestUserDefinedOnesAlways) {
  const auto t = Make(SmallSpec());
  EXPECT_EQ(t->Encode("<s>hello").value(), (Ids{'<', 's', '>', kHello}));
  EXPECT_EQ(t->Encode("<s>hello", {.parse_special = true}).value(), (Ids{kStart, kHello}));
  EXPECT_EQ(t->Encode("<think>hello").value(), (Ids{kThink, kHello}));
  EXPECT_EQ(t->Encode("<think>er").value(), (Ids{kThinker}));  // the longest
  EXPECT_EQ(t->Encode("<thin").value(), (Ids{'<', 't', 'h', 'i', 'n'}));
}

TEST(Tokenizer, AnAddedTokenEndsTheTextBeforeIt) {
  const auto t = Make(SmallSpec());
  EXPECT_EQ(t->Encode("  <s>  ", {.parse_special = true}).value(), (Ids{' ', ' ', kStart, ' ', ' '}));
  EXPECT_TRUE(t->Encode("").value().empty());
}

TEST(Tokenizer, PartsAreOneTextButInputIsNeverControl) {
  const auto t = Make(SmallSpec());
  const TextPart prompt[] = {{"<s>he", false}, {"llo<|im_end|>", true}, {"<|im_end|>", false}};
  const Ids end_as_text = t->Encode("<|im_end|>").value();
  Ids expected = {kStart, kHello};
  expected.insert(expected.end(), end_as_text.begin(), end_as_text.end());
  expected.push_back(kEnd);
  EXPECT_EQ(t->EncodeParts(prompt, false).value(), expected);
}

TEST(Tokenizer, AControlTokenNeedsEveryByteFromTheTemplate) {
  const auto t = Make(SmallSpec());
  const TextPart halves[] = {{"<|im_", true}, {"end|>", false}};
  EXPECT_EQ(t->EncodeParts(halves, false).value(), t->Encode("<|im_end|>").value());
  const TextPart middle[] = {{"<|im_", false}, {"e", true}, {"nd|>", false}};
  EXPECT_EQ(t->EncodeParts(middle, false).value(), t->Encode("<|im_end|>").value());
  const TextPart ours[] = {{"<|im_", false}, {"", true}, {"end|>", false}};
  EXPECT_EQ(t->EncodeParts(ours, false).value(), (Ids{kEnd}));
  const TextPart user_defined[] = {{"<thi", true}, {"nk>", false}};
  EXPECT_EQ(t->EncodeParts(user_defined, false).value(), (Ids{kThink}));
  EXPECT_TRUE(t->EncodeParts({}, false).value().empty());
}

TEST(Tokenizer, ALongerForbiddenTokenDoesNotHideAnAllowedOne) {
  TokenizerSpec spec = SmallSpec();
  spec.tokens[kThinker] = "<think>\n<s>";
  spec.token_types[kThinker] = 3;
  const auto t = Make(spec);
  const TextPart parts[] = {{"<think>\n", true}, {"<s>", false}};
  EXPECT_EQ(t->EncodeParts(parts, false).value(), (Ids{kThink, '\n', kStart}));
}

TEST(Tokenizer, ExactlyOneBos) {
  TokenizerSpec spec = SmallSpec();
  spec.add_bos = true;
  const auto t = Make(spec);
  EXPECT_EQ(t->Encode("hello", {.add_special = true}).value(), (Ids{kStart, kHello}));
  EXPECT_EQ(t->Encode("<s>hello", {.add_special = true, .parse_special = true}).value(), (Ids{kStart, kHello}));
  const TextPart with_bos[] = {{"<s>"}, {"hello", true}};
  EXPECT_EQ(t->EncodeParts(with_bos, true).value(), (Ids{kStart, kHello}));
  const TextPart without_bos[] = {{"hello", true}};
  EXPECT_EQ(t->EncodeParts(without_bos, true).value(), (Ids{kStart, kHello}));
  const TextPart typed_bos[] = {{"<s>", true}};
  EXPECT_EQ(t->EncodeParts(typed_bos, true).value(), (Ids{kStart, '<', 's', '>'}));
  EXPECT_EQ(t->Encode("", {.add_special = true}).value(), (Ids{kStart}));
  Ids ids = {kStart};
  EXPECT_FALSE(t->AddSpecial(&ids));
}

TEST(Tokenizer, EosAtTheEndIfTheFileAsks) {
  TokenizerSpec spec = SmallSpec();
  spec.add_eos = true;
  spec.eos_id = kEnd;
  const auto t = Make(spec);
  EXPECT_EQ(t->Encode("hello", {.add_special = true}).value(), (Ids{kHello, kEnd}));
  EXPECT_EQ(t->Encode("hello").value(), (Ids{kHello}));
}

TEST(Tokenizer, AWordThatIsATokenStaysWholeWithIgnoreMerges) {
  TokenizerSpec spec = SmallSpec("llama-bpe");
  spec.merges = {"h e"};
  EXPECT_EQ(Make(spec)->Encode("hello").value(), (Ids{kHello}));
  spec.ignore_merges = false;
  EXPECT_EQ(Make(spec)->Encode("hello").value(), (Ids{kHe, 'l', 'l', 'o'}));
  spec.ignore_merges.reset();
  spec.pre = "qwen2";
  EXPECT_EQ(Make(spec)->Encode("hello").value(), (Ids{kHe, 'l', 'l', 'o'}));
}

TEST(Tokenizer, IgnoreMergesNeverFindsAControlToken) {
  TokenizerSpec spec = SmallSpec("llama-bpe");
  spec.token_types[kHello] = 3;
  EXPECT_EQ(Make(spec)->Encode("hello").value(), (Ids{258, 'o'}));
}

TEST(Tokenizer, EveryByteSurvives) {
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    const auto t = Make(SmallSpec(pre));
    std::string bytes;
    for (int i = 0; i < 256; ++i) bytes += std::string(1, static_cast<char>(i)) + "a";
    std::string joined;
    const Ids ids = t->Encode(bytes).value();
    for (int32_t id : ids) joined += t->Piece(id);
    EXPECT_EQ(joined, bytes) << pre;
  }
}

TEST(Tokenizer, DecodeIsValidUtf8AndSkipsControlTokensOnRequest) {
  const auto t = Make(SmallSpec());
  EXPECT_EQ(t->Decode(Ids{kStart, kHello, kEnd}), "hello");
  EXPECT_EQ(t->Decode(Ids{kStart, kHello, kEnd}, false), "<s>hello<|im_end|>");
  EXPECT_EQ(t->Decode(Ids{kThink}), "<think>");
  EXPECT_EQ(t->Decode(Ids{0xC3, 'a', 0xE2, 0x82}),
            "\uFFFD"
            "a\uFFFD");
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreNothing) {
  const auto t = Make(SmallSpec());
  for (int32_t id : {-1, 264, 2147483647, -2147483647 - 1}) {
    EXPECT_EQ(t->Piece(id), "");
    EXPECT_FALSE(t->IsControl(id));
    EXPECT_EQ(t->Decode(Ids{kHello, id}), "hello");
  }
}

// One word, one run of spaces, one line of newlines, one almost-token: each a megabyte. The bound is for a loaded
// machine; the count of steps is in bpe_test.cc.
TEST(Tokenizer, AMegabyteOfOneCharacterIsNoTrap) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    const auto t = Make(SmallSpec(pre));
    for (const char* unit : {"l", " ", "\n", "<", "<think", " \n", "1", "'"}) {
      std::string text;
      while (text.size() < (1 << 20)) text += unit;
      EXPECT_EQ(t->Decode(t->Encode(text).value()), text);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace lockstep::tokenizer
