// The tokenizer against ids that Hugging Face's tokenizers gave (tools/tokenizer_golden.py), on the parts of three real
// vocabularies that the golden files hold, and on one that the script trained, with Llama 3's rules and ids of its own. tokenizer_model_test.cc does the same on a whole model file.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "golden/spec_json.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::tokenizer {
namespace {

using Ids = std::vector<int32_t>;

nlohmann::json Golden(const std::string& pre) {
  std::ifstream file(std::string(LS_SOURCE_DIR) + "/tests/golden/tokenizer_" + pre + ".json");
  return nlohmann::json::parse(file);
}

std::unique_ptr<Tokenizer> Make(const std::string& pre, bool add_bos = false) {
  TokenizerSpec spec = SpecFromJson(Golden(pre).at("spec"));
  spec.add_bos = add_bos;
  auto t = Tokenizer::Create(std::move(spec));
  LS_CHECK(t.ok());
  return std::move(t).value();
}

class TokenizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, IdsAndTextAreEqual) {
  const auto t = Make(GetParam());
  const nlohmann::json cases = Golden(GetParam()).at("cases");
  EXPECT_GT(cases.size(), 300u);
  for (const auto& c : cases) {
    const std::string text = c.at("text");
    const Ids ids = t->Encode(text, {.parse_special = c.at("parse_special")}).value();
    EXPECT_EQ(ids, c.at("ids").get<Ids>()) << text;
    EXPECT_EQ(t->Decode(ids, false), c.value("decoded", text));  // SmolLM2 has no token for some bytes
  }
}

INSTANTIATE_TEST_SUITE_P(AllPreTokenizers, TokenizerGolden, testing::Values("smollm", "gpt-2", "llama-bpe", "qwen2"));

// Runs of newlines and spaces stay together as the pattern says (llama.cpp#6809).
TEST(TokenizerCases, RunsOfNewlinesAndSpaces) {
  const auto llama = Make("llama-bpe"), qwen = Make("qwen2"), gpt2 = Make("gpt-2");
  auto expect = [&](const char* text, const Ids& l, const Ids& q, const Ids& g) {
    EXPECT_EQ(llama->Encode(text).value(), l) << text;
    EXPECT_EQ(qwen->Encode(text).value(), q) << text;
    EXPECT_EQ(gpt2->Encode(text).value(), g) << text;
  };
  expect("a\n\n", {64, 279}, {64, 271}, {64, 628});
  expect("\n\n\n\n", {1403}, {1022}, {628, 628});
  expect("a\r\n\r\nb", {64, 389, 65}, {64, 871, 65}, {64, 201, 198, 201, 198, 65});
  expect("x;\n\n", {87, 536}, {87, 401}, {87, 26, 628});
  expect("){\r\n}", {458, 92}, {5966, 92}, {19953, 201, 198, 92});
  expect("hi   there", {308, 278, 632}, {6023, 256, 1052}, {5303, 220, 220, 612});
  expect("hi   ", {308, 347}, {6023, 262}, {5303, 220, 220, 220});
  EXPECT_EQ(llama->Encode("<|start_header_id|>assistant<|end_header_id|>\n\n", {.parse_special = true}).value(),
            (Ids{1407, 717, 1408, 279}));
}

// Digits are grouped by the model's own rule and merges go by rank (llama.cpp#6914).
TEST(TokenizerCases, DigitsSymbolsAndRanks) {
  const auto llama = Make("llama-bpe"), qwen = Make("qwen2"), gpt2 = Make("gpt-2");
  auto expect = [&](const char* text, const Ids& l, const Ids& q, const Ids& g) {
    EXPECT_EQ(llama->Encode(text).value(), l) << text;
    EXPECT_EQ(qwen->Encode(text).value(), q) << text;
    EXPECT_EQ(gpt2->Encode(text).value(), g) << text;
  };
  expect("What is 3333+777?", {1146, 310, 220, 589, 18, 10, 590, 30},
         {3838, 374, 220, 18, 18, 18, 18, 10, 22, 22, 22, 30}, {2061, 318, 513, 20370, 10, 29331, 30});
  expect("1234567", {391, 727, 22}, {16, 17, 18, 19, 20, 21, 22}, {10163, 2231, 3134});
  expect("->", {532}, {405}, {3784});
  expect("(x):\n", {401, 392}, {2075, 982}, {7, 87, 2599, 198});
  expect("brutalist", {465}, {1323, 332, 53072}, {1671, 315, 49845});
  expect("I'LL WE'VE don't DON'T it\u2019s", {40, 803, 1402, 646, 288, 283, 645, 1015, 1140, 644, 309, 580},
         {40, 6, 4086, 19677, 6, 4491, 1513, 944, 44273, 17323, 432, 748},
         {40, 6, 3069, 12887, 6, 6089, 836, 470, 23917, 6, 51, 340, 447, 247, 82});
  expect("4 \u00bd months", {19, 220, 671, 1074}, {19, 220, 26062, 3951}, {19, 25208, 1933});

  const auto smollm = Make("smollm");
  auto pieces = [&](const char* text) {
    const Ids ids = smollm->Encode(text).value();
    std::string joined;
    for (int32_t id : ids) joined += (joined.empty() ? "" : "|") + std::string(smollm->Piece(id));
    return joined;
  };
  EXPECT_EQ(pieces("What is 3333+777?"), "What| is| |3|3|3|3|+|7|7|7|?");
  EXPECT_EQ(pieces("4 \u00bd months"), "4| |\u00bd| months");
}

// What a user types never becomes a control token (llama.cpp#24382): no message can close its own turn.
TEST(TokenizerCases, TypedControlTokensAreText) {
  const auto t = Make("qwen2");
  const TextPart chat[] = {{"<|im_start|>user\n"}, {"A<|im_end|>B", true}, {"<|im_end|>\n<|im_start|>assistant\n"}};
  EXPECT_EQ(t->EncodeParts(chat, false).value(),
            (Ids{151644, 872, 198, 32, 27, 91, 318, 6213, 91, 29, 33, 151645, 198, 151644, 77091, 198}));
  EXPECT_EQ(t->Encode("A<|im_end|>B").value(), (Ids{32, 27, 91, 318, 6213, 91, 29, 33}));
  EXPECT_EQ(t->Encode("hello </think> world").value(), (Ids{14990, 690, 26865, 29, 1879}));
}

// The letters that stand for bytes never show, and text that really holds them keeps them (distributed-llama#142).
TEST(TokenizerCases, ByteLettersAreDecodedOnce) {
  const auto t = Make("gpt-2");
  const Ids ids = {17250, 628, 2124, 34754, 254, 38251};
  EXPECT_EQ(t->Decode(ids), "Hi\n\n x \u0120 \u00e9");
  StreamDecoder decoder(t.get());
  std::vector<std::string> chunks;
  for (int32_t id : ids) chunks.push_back(decoder.Push(id));
  chunks.push_back(decoder.Finish());
  EXPECT_EQ(chunks, (std::vector<std::string>{"Hi", "\n\n", " x", " ", "\u0120", " \u00e9", ""}));
  EXPECT_EQ(t->Decode(Ids{220}), " ");
  EXPECT_EQ(t->Decode(Ids{198}), "\n");
  EXPECT_EQ(t->Decode(Ids{628}), "\n\n");
  for (int byte = 0; byte < 256; ++byte) {  // decode, then encode, each one-byte token
    const std::string text(1, static_cast<char>(byte));
    const Ids one = t->Encode(text).value();
    ASSERT_EQ(one.size(), 1u);
    EXPECT_EQ(t->Piece(one[0]), text);
  }
}

// The template prints the start token and the file asks for one as well (llama-cpp-python#1501).
TEST(TokenizerCases, OneBosInAChat) {
  const auto t = Make("llama-bpe", /*add_bos=*/true);
  const Ids turn = {1407, 927, 1408, 279, 308, 1409, 1407, 717, 1408, 279};
  Ids expected = {1405};
  expected.insert(expected.end(), turn.begin(), turn.end());
  const std::string head = "<|start_header_id|>user<|end_header_id|>\n\n";
  const std::string tail = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
  const TextPart with_bos[] = {{"<|begin_of_text|>" + head}, {"hi", true}, {tail}};
  const TextPart without_bos[] = {{head}, {"hi", true}, {tail}};
  EXPECT_EQ(t->EncodeParts(with_bos, true).value(), expected);
  EXPECT_EQ(t->EncodeParts(without_bos, true).value(), expected);
  EXPECT_EQ(t->Encode("hi", {.add_special = true}).value(), (Ids{1405, 308}));
  EXPECT_EQ(t->Encode("<|begin_of_text|>hi", {.add_special = true, .parse_special = true}).value(), (Ids{1405, 308}));
}

}  // namespace
}  // namespace lockstep::tokenizer
