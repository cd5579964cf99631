#include "tokenizer/jinja/text.h"

#include <gtest/gtest.h>

#include "tokenizer/jinja/print.h"
#include "tokenizer/jinja/strings.h"

namespace lockstep::tokenizer::jinja {
namespace {

std::string Show(const Text& text) {
  std::string out;
  for (const TextPart& part : text.Parts())
    out += (part.is_input ? "<" : "[") + part.text + (part.is_input ? ">" : "]");
  return out;
}

Text Mixed() {
  Text text("ab", false);
  text.Append("CD", true);
  text.Append("EF", true);
  text.Append("gh", false);
  return text;
}

TEST(Text, NeighboursOfOneOriginAreOneRun) {
  EXPECT_EQ(Show(Mixed()), "[ab]<CDEF>[gh]");
}

TEST(Text, SliceKeepsTheMarks) {
  EXPECT_EQ(Show(Mixed().Slice(1, 7)), "[b]<CDEF>[g]");
  EXPECT_EQ(Show(Mixed().Slice(3, 5)), "<DE>");
  EXPECT_EQ(Show(Mixed().Slice(6, 99)), "[gh]");
  EXPECT_EQ(Show(Mixed().Slice(5, 2)), "");
}

TEST(Text, StringOperationsKeepTheMarks) {
  EXPECT_EQ(Show(MapChars(Mixed(), LowerChar)), "[ab]<cdef>[gh]");
  EXPECT_EQ(Show(*Replace(Mixed(), Text("b", false), Text("X", true), -1, 99)), "[a]<XCDEF>[gh]");
  const std::string sep = "D";
  const std::vector<Text> parts = Split(Mixed(), &sep, -1);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(Show(parts[0]), "[ab]<C>");
  EXPECT_EQ(Show(parts[1]), "<EF>[gh]");
}

TEST(Text, InvalidBytesAreOneCharacterEachAndSurvive) {
  const std::string bytes = "a\xE4\xFF\xC3\xA9\xF0\x9F";
  EXPECT_EQ(CountChars(bytes), 6u);
  EXPECT_EQ(MapChars(Text(bytes, true), UpperChar).bytes(), "A\xE4\xFF\xC3\x89\xF0\x9F");
}

TEST(Print, FloatsLookLikePythons) {
  EXPECT_EQ(FloatText(1.0), "1.0");
  EXPECT_EQ(FloatText(1e16), "1e+16");
  EXPECT_EQ(FloatText(123456789012345.0), "123456789012345.0");
  EXPECT_EQ(FloatText(1e-5), "1e-05");
  EXPECT_EQ(FloatText(0.1), "0.1");
}

TEST(FromJson, DeepAndLargeInputIsRefused) {
  EXPECT_FALSE(FromJson(std::string(200, '[') + std::string(200, ']'), true).ok());
  EXPECT_FALSE(FromJson("18446744073709551615", true).ok());
  EXPECT_FALSE(FromJson("{", true).ok());
}

}  // namespace
}  // namespace lockstep::tokenizer::jinja
