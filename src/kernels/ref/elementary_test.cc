#include "kernels/ref/elementary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ref/elementary64.h"

namespace lockstep::kernels::ref {
namespace {

float FromBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

uint32_t Bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// The error of `got` in units of the last place of the exact value.
double UlpError(float got, double exact) {
  int exponent;
  std::frexp(exact, &exponent);
  return std::fabs(got - exact) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// The bound that elementary.h states.
constexpr double kMaxUlp = 2.0;
// A prime stride through all bit patterns: every exponent, and 2^23 / 61 mantissas of each.
constexpr uint32_t kStride = 61;

TEST(Elementary, ExpIsWithinTwoUnitsOfADoubleVersion) {
  double worst = 0;
  float where = 0;
  auto check = [&](float x) {
    double error = UlpError(Exp(x), std::exp(static_cast<double>(x)));
    if (error > worst) worst = error, where = x;
  };
  // Below 2^-26 the answer is 1 or its neighbour; the exponents that matter are swept one by one.
  for (uint32_t bits = Bits(0x1p-30f); bits <= Bits(88.0f); bits += kStride) check(FromBits(bits));
  for (uint32_t bits = Bits(0x1p-30f); bits <= Bits(87.0f); bits += kStride) check(-FromBits(bits));
  // The seams: where n changes the remainder is largest.
  for (int n = -120; n <= 120; ++n)
    for (int i = -200; i <= 200; ++i) check(FromBits(Bits(static_cast<float>((n + 0.5) * 0.6931471805599453)) + i));
  EXPECT_LT(worst, kMaxUlp) << "at " << where;
  RecordProperty("worst_exp_ulp", std::to_string(worst));
}

TEST(Elementary, ExpAtItsEdges) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-87.5f), 0.0f);
  EXPECT_EQ(Exp(-1e30f), 0.0f);
  EXPECT_EQ(Exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_GT(Exp(-87.0f), 0.0f);
  EXPECT_TRUE(std::isinf(Exp(88.5f)));
  EXPECT_TRUE(std::isinf(Exp(std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(std::isfinite(Exp(88.0f)));
}

TEST(Elementary, LogIsWithinTwoUnitsOfADoubleVersion) {
  double worst = 0;
  float where = 0;
  auto check = [&](float x) {
    double exact = std::log(static_cast<double>(x));
    if (exact == 0) return;
    double error = UlpError(Log(x), exact);
    if (error > worst) worst = error, where = x;
  };
  for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += kStride) check(FromBits(bits));
  // Near 1, where the answer is small and its relative error counts: every value.
  for (uint32_t bits = Bits(0.96875f); bits <= Bits(1.03125f); ++bits) check(FromBits(bits));
  // The seam of the mantissa at sqrt(1/2).
  for (int i = -20000; i <= 20000; ++i) check(FromBits(0x3f3504f3u + i));
  EXPECT_LT(worst, kMaxUlp) << "at " << where;
  EXPECT_EQ(Log(1.0f), 0.0f);
  RecordProperty("worst_log_ulp", std::to_string(worst));
}

TEST(Elementary64, AgreesWithTheMathematicsLibrary) {
  for (double x = -600000; x < 600000; x += 137.1) {
    double sin, cos;
    SinCos64(x, &sin, &cos);
    ASSERT_NEAR(sin, std::sin(x), 2e-15) << x;
    ASSERT_NEAR(cos, std::cos(x), 2e-15) << x;
  }
  for (double x = -30; x < 30; x += 0.0371) {
    ASSERT_NEAR(Exp64(x) / std::exp(x), 1.0, 1e-14) << x;
    ASSERT_NEAR(Log64(std::exp(x)), x, 1e-14 * 30) << x;
  }
}

}  // namespace
}  // namespace lockstep::kernels::ref
