#include "step/noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace lockstep::step {
namespace {

// The known answers published with the generator (Random123, kat_vectors).
TEST(Noise, PhiloxKnownAnswers) {
  struct Case {
    PhiloxBlock counter;
    uint64_t key;
    PhiloxBlock answer;
  };
  const Case cases[] = {
      {{{0, 0, 0, 0}}, 0, {{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}}},
      {{{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}},
       0xffffffffffffffffull,
       {{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}}},
      {{{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}},
       0x299f31d0a4093822ull,
       {{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}}},
  };
  for (const Case& c : cases) {
    PhiloxBlock got = Philox4x32(c.counter, c.key);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], c.answer.word[i]) << i;
  }
}

TEST(Noise, UniformIsExactAndNeverZeroOrOne) {
  EXPECT_EQ(UniformFromWord(0), 0x1p-24f);
  EXPECT_EQ(UniformFromWord(0x1ff), 0x1p-24f);  // the low nine bits do not matter
  EXPECT_EQ(UniformFromWord(0x200), 0x1.8p-23f);
  EXPECT_EQ(UniformFromWord(0xffffffffu), 1.0f - 0x1p-24f);
  EXPECT_EQ(UniformFromWord(0x7fffffffu) + UniformFromWord(0x80000000u), 1.0f);
}

TEST(Noise, EveryValueIsWithinTheBoundsAndNearADoubleVersion) {
  float most = -1e30f, least = 1e30f;
  double worst = 0, sum = 0;
  float previous = -1e30f;
  int64_t falls = 0;
  for (uint32_t k = 0; k < (1u << 23); ++k) {
    float g = GumbelFromWord(k << 9);
    ASSERT_LE(g, GumbelBound(k << 9)) << k;
    ASSERT_LE(g, GumbelBound(k << 9 | 0x1ff)) << k;
    most = std::max(most, g);
    least = std::min(least, g);
    sum += g;
    if (g < previous) ++falls;
    previous = g;
    double u = (k + 0.5) * 0x1p-23;
    double exact = -std::log(-std::log(u));
    worst = std::max(worst, std::fabs(g - exact) / std::max(1.0, std::fabs(exact)));
  }
  EXPECT_EQ(most, kMaxGumbel);
  EXPECT_GE(least, kMinGumbel);
  EXPECT_LT(worst,
            4e-7);  // a few units in the last place of the inner log, which is relative there
  EXPECT_NEAR(sum / (1 << 23), 0.5772157, 1e-5);  // Euler's constant is the mean
  EXPECT_LT(falls, (1 << 23) / 100);              // rounding may swap neighbours, never more
}

TEST(Noise, NamesSeparateTheValues) {
  EXPECT_EQ(Gumbel(7, 100, 42), Gumbel(7, 100, 42));
  EXPECT_NE(Gumbel(7, 100, 42), Gumbel(8, 100, 42));
  EXPECT_NE(Gumbel(7, 100, 42), Gumbel(7, 101, 42));
  EXPECT_NE(Gumbel(7, 100, 42), Gumbel(7, 100, 43));
  EXPECT_NE(Gumbel(7, 100, 42), Gumbel(7ull << 32, 100, 42));
  // Position and token are not mixed up: (a, 4b) and (b, 4a) are different counters.
  EXPECT_NE(Gumbel(7, 3, 4 * 5), Gumbel(7, 5, 4 * 3));
  for (int32_t token = 0; token < 64; ++token)
    EXPECT_EQ(Gumbel(9, 5, token), GumbelFromWord(NoiseBlock(9, 5, token / 4).word[token % 4]));
}

}  // namespace
}  // namespace lockstep::step
