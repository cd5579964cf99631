#include "tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "tokenizer/test_vocabulary.h"
#include "tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

std::unique_ptr<Tokenizer> Make() {
  auto t = Tokenizer::Create(SmallSpec());
  LS_CHECK(t.ok());
  return std::move(t).value();
}

TEST(StreamDecoder, HoldsACharacterUntilItIsWhole) {
  const auto t = Make();
  StreamDecoder decoder(t.get());
  EXPECT_EQ(decoder.Push(kHello), "hello");
  EXPECT_EQ(decoder.Push(0xF0), "");
  EXPECT_EQ(decoder.Push(0x9F), "");
  EXPECT_EQ(decoder.Push(0x98), "");
  EXPECT_EQ(decoder.Push(0x80), "\U0001F600");
  EXPECT_EQ(decoder.Push(0xC4), "");
  EXPECT_EQ(decoder.Push(0xA0), "\u0120");  // a real U+0120, not the letter for a space
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamDecoder, AnUnfinishedCharacterIsOneReplacement) {
  const auto t = Make();
  StreamDecoder decoder(t.get());
  for (int32_t byte : {0xF0, 0x9F, 0x98}) EXPECT_EQ(decoder.Push(byte), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Finish(), "");
  EXPECT_EQ(decoder.Push('a'), "a");
}

TEST(StreamDecoder, ControlTokensAreSkippedOrShown) {
  const auto t = Make();
  EXPECT_EQ(StreamDecoder(t.get()).Push(kEnd), "");
  EXPECT_EQ(StreamDecoder(t.get(), false).Push(kEnd), "<|im_end|>");
}

TEST(StreamDecoder, ChunksAreValidAndJoinToTheWhole) {
  const auto t = Make();
  std::mt19937 rng(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids(rng() % 12);
    for (int32_t& id : ids) {
      // Mostly bytes that can begin or continue a character: the interesting ones.
      id = static_cast<int32_t>(rng() % 4 ? 0x80 + rng() % 0x80 : rng() % 270);
    }
    StreamDecoder decoder(t.get());
    std::string joined;
    auto take = [&joined](const std::string& chunk) {
      std::string valid;
      EXPECT_EQ(AppendValidUtf8(chunk, &valid), chunk.size());
      EXPECT_EQ(valid, chunk);
      joined += chunk;
    };
    for (int32_t id : ids) take(decoder.Push(id));
    take(decoder.Finish());
    EXPECT_EQ(joined, t->Decode(ids));
  }
}

}  // namespace
}  // namespace lockstep::tokenizer
