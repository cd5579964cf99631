// exp and log in fp32: the definition. Every path that feeds a token uses these polynomials, on every target.
//
// Shapes:   one value
// Capture:  pure functions
// Order:    the operations as written; fma is one rounding
// Source:   exp: x = n ln2 + r with n = round(x / ln2), |r| <= ln2/2, Taylor to r^7/7! (the rest is below 2^-27 of the
//           value). ln2 in two parts, the first with 9 trailing zero bits so that n * hi is exact.
//           log: x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m-1)/(m+1), series to s^11/11
//           (|s| <= 0.1716, the rest is below 2^-30).
// Accuracy: below 2 units in the last place against a double version (elementary_test.cc)
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace lockstep::kernels::ref {

inline float Exp(float x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, half to even
  float shifted = std::fma(x, 0x1.715476p+0f, magic);
  float n = shifted - magic;
  float r = std::fma(n, -0x1.62e400p-1f, x);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  float p = 1.0f / 5040;
  p = std::fma(p, r, 1.0f / 720);
  p = std::fma(p, r, 1.0f / 120);
  p = std::fma(p, r, 1.0f / 24);
  p = std::fma(p, r, 1.0f / 6);
  p = std::fma(p, r, 0.5f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  uint32_t scale_bits = (bits - 0x4B400000u + 127u) << 23;
  float scale;
  std::memcpy(&scale, &scale_bits, sizeof scale);
  float y = p * scale;
  if (x < -87.0f) y = 0.0f;  // the least value whose result is normal, rounded up
  if (x > 88.0f) y = std::numeric_limits<float>::infinity();
  return y;
}

// x > 0 and normal; anything else is the caller's mistake.
inline float Log(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits += 0x3f800000u - 0x3f3504f3u;  // so that the exponent field splits at sqrt(1/2)
  int32_t e = (static_cast<int32_t>(bits) >> 23) - 127;
  bits = (bits & 0x007fffffu) + 0x3f3504f3u;
  float m;
  std::memcpy(&m, &bits, sizeof m);
  float f = m - 1.0f;
  float s = f / (2.0f + f);
  float z = s * s;
  float p = 1.0f / 11;
  p = std::fma(p, z, 1.0f / 9);
  p = std::fma(p, z, 1.0f / 7);
  p = std::fma(p, z, 1.0f / 5);
  p = std::fma(p, z, 1.0f / 3);
  p = p * z;
  float s2 = s + s;
  float y = std::fma(s2, p, s2);
  float ef = static_cast<float>(e);
  y = std::fma(ef, 0x1.7f7d1cp-20f, y);
  return std::fma(ef, 0x1.62e400p-1f, y);
}

}  // namespace lockstep::kernels::ref
