#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace lockstep::tokenizer {
namespace {

std::array<int32_t, 256> ByteIds(std::string_view bytes) {
  std::array<int32_t, 256> ids;
  ids.fill(-1);
  for (size_t i = 0; i < bytes.size(); ++i) ids[static_cast<uint8_t>(bytes[i])] = static_cast<int32_t>(i);
  return ids;
}

std::vector<int32_t> Encode(const Bpe& bpe, std::string_view word) {
  Bpe::Scratch scratch;
  std::vector<int32_t> ids;
  bpe.Encode(word, &scratch, &ids);
  return ids;
}

// The definition: again and again the pair of lowest rank, of equal ones the leftmost.
std::vector<int32_t> Slowly(std::vector<int32_t> ids, const std::vector<Bpe::Merge>& merges) {
  while (true) {
    size_t best_rank = merges.size(), best_pos = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) {
          best_rank = rank;
          best_pos = i;
        }
      }
    }
    if (best_rank == merges.size()) return ids;
    ids[best_pos] = merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_pos) + 1);
  }
}

TEST(Bpe, MergesByRankNotFromTheLeft) {
  // a=0 b=1 c=2; bc=3 before ab=4
  const Bpe bpe(ByteIds("abc"), std::vector<Bpe::Merge>{{1, 2, 3}, {0, 1, 4}});
  EXPECT_EQ(Encode(bpe, "abc"), (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(Encode(bpe, "abab"), (std::vector<int32_t>{4, 4}));
  EXPECT_TRUE(Encode(bpe, "").empty());
}

TEST(Bpe, AByteWithoutATokenIsLeftOut) {
  const Bpe bpe(ByteIds("ab"), std::vector<Bpe::Merge>{{0, 1, 2}});
  EXPECT_EQ(Encode(bpe, "a?b"), (std::vector<int32_t>{2}));
  EXPECT_TRUE(Encode(bpe, "??").empty());
}

TEST(Bpe, OfEqualMergesTheLastOneCounts) {
  const Bpe bpe(ByteIds("ab"), std::vector<Bpe::Merge>{{0, 1, 2}, {1, 0, 3}, {0, 1, 2}});
  EXPECT_EQ(Encode(bpe, "aba"), (std::vector<int32_t>{0, 3}));
}

TEST(Bpe, EqualsTheDefinitionOnRandomVocabularies) {
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::vector<Bpe::Merge> merges;
    for (int i = 0; i < 25; ++i) {
      const auto left = static_cast<int32_t>(rng() % tokens.size());
      const auto right = static_cast<int32_t>(rng() % tokens.size());
      const std::string text = tokens[left] + tokens[right];
      if (std::find(tokens.begin(), tokens.end(), text) != tokens.end()) continue;
      merges.push_back({left, right, static_cast<int32_t>(tokens.size())});
      tokens.push_back(text);
    }
    std::shuffle(merges.begin(), merges.end(), rng);
    const Bpe bpe(ByteIds("abc"), merges);
    for (int k = 0; k < 10; ++k) {
      std::string word;
      std::vector<int32_t> bytes;
      for (size_t i = rng() % 40; i > 0; --i) {
        bytes.push_back(static_cast<int32_t>(rng() % 3));
        word.push_back(static_cast<char>('a' + bytes.back()));
      }
      ASSERT_EQ(Encode(bpe, word), Slowly(bytes, merges)) << word;
    }
  }
}

// A megabyte of one character is one word. Each join adds at most two candidates, so the heap sees at most 3n; a scan
// over the word for every join would be n^2 = 10^12.
TEST(Bpe, AWordOfAMegabyteTakesLinearlyManyCandidates) {
  std::vector<Bpe::Merge> merges;
  for (int32_t i = 0; i < 10; ++i) merges.push_back({i, i, i + 1});  // a, aa, aaaa, ...
  const Bpe bpe(ByteIds("a"), merges);
  const std::string word(1 << 20, 'a');
  Bpe::Scratch scratch;
  std::vector<int32_t> ids;
  bpe.Encode(word, &scratch, &ids);
  EXPECT_EQ(ids, std::vector<int32_t>(1 << 10, 10));
  EXPECT_LE(scratch.num_candidates(), 3 * word.size());
}

}  // namespace
}  // namespace lockstep::tokenizer
