#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

#include "tokenizer/byte_level.h"
#include "tokenizer/quote.h"

namespace lockstep::tokenizer {
namespace {

TEST(Unicode, ClassesAreThoseOfUnicode16) {
  EXPECT_EQ(CharClassOf('a'), CharClass::kLetter);
  EXPECT_EQ(CharClassOf('7'), CharClass::kNumber);
  EXPECT_EQ(CharClassOf('\n'), CharClass::kSpace);
  EXPECT_EQ(CharClassOf('_'), CharClass::kOther);
  EXPECT_EQ(CharClassOf(0x85), CharClass::kSpace);
  EXPECT_EQ(CharClassOf(0x3000), CharClass::kSpace);
  EXPECT_EQ(CharClassOf(0x200B), CharClass::kOther);   // zero width space is no White_Space
  EXPECT_EQ(CharClassOf(0xBD), CharClass::kNumber);    // one half, No
  EXPECT_EQ(CharClassOf(0x2167), CharClass::kNumber);  // roman eight, Nl
  EXPECT_EQ(CharClassOf(0x0301), CharClass::kOther);   // combining acute
  EXPECT_EQ(CharClassOf(0x4E00), CharClass::kLetter);
  EXPECT_EQ(CharClassOf(0x105C0), CharClass::kLetter);  // Todhri, new in Unicode 16
  EXPECT_EQ(CharClassOf(0x1CCF0), CharClass::kNumber);  // outlined digit zero, new in Unicode 16
  EXPECT_EQ(CharClassOf(0x11DE0), CharClass::kNewNumber);
  EXPECT_EQ(CharClassOf(0x10FFFF), CharClass::kOther);
  EXPECT_EQ(CharClassOf(kInvalidByte), CharClass::kOther);
}

TEST(Unicode, EveryCodePointSurvivesUtf8) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    const Utf8Char got = DecodeUtf8(text, 0);
    ASSERT_EQ(got.code_point, c);
    ASSERT_EQ(got.num_bytes, text.size());
  }
}

TEST(Unicode, MalformedSequencesAreSingleBytes) {
  for (const char* text : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                           "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82", "\xC3"}) {
    const Utf8Char got = DecodeUtf8(text, 0);
    EXPECT_EQ(got.code_point, kInvalidByte) << Quote(text);
    EXPECT_EQ(got.num_bytes, 1u) << Quote(text);
  }
}

TEST(Unicode, ReplacementFollowsTheLongestValidPrefix) {
  auto repair = [](std::string_view bytes) {
    std::string text;
    const size_t used = AppendValidUtf8(bytes, &text);
    return text + "|" + std::to_string(bytes.size() - used);
  };
  EXPECT_EQ(repair("a\u00e9\U0001F600"), "a\u00e9\U0001F600|0");
  EXPECT_EQ(repair("\xF0\x9F\x98"
                   "a"),
            "\uFFFD"
            "a|0");                                           // one prefix, one replacement
  EXPECT_EQ(repair("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD|0");  // a surrogate is three bad bytes
  EXPECT_EQ(repair("a\xF0\x9F\x98"), "a|3");                  // more may come
  EXPECT_EQ(repair("\xC3\xC3"), "\uFFFD|1");
}

TEST(ByteLevel, AllBytesSurviveAndOtherTextIsRefused) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  const std::string letters = EncodeByteLevel(bytes);
  EXPECT_EQ(DecodeByteLevel(letters), bytes);
  EXPECT_EQ(EncodeByteLevel(" a\n"), "\u0120a\u010A");
  EXPECT_EQ(DecodeByteLevel("a b"), std::nullopt);
  EXPECT_EQ(DecodeByteLevel("\u0144"), std::nullopt);
  EXPECT_EQ(DecodeByteLevel("\xC4"), std::nullopt);
  EXPECT_EQ(DecodeByteLevel(""), "");
}

TEST(Quote, MakesOneShortLine) {
  EXPECT_EQ(Quote("a\n\"\xFF\u00e9"), "\"a\\x0a\\x22\\xff\u00e9\"");
  EXPECT_EQ(Quote(std::string(100, 'a')), "\"" + std::string(64, 'a') + "...\"");
}

}  // namespace
}  // namespace lockstep::tokenizer
