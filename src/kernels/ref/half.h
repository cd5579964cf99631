// f16 and bf16 conversions, bit for bit: the definition that the vector instructions must equal.
//
// Source: IEEE 754 binary16; bfloat16 is the upper half of binary32. Rounding is half to even.
// Capture: pure functions
#pragma once

#include <cstdint>
#include <cstring>

namespace lockstep::kernels::ref {

// Static, so that each translation unit keeps its own copy (the instruction-set units must not share code).
[[maybe_unused]] static inline float F16ToF32(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  uint32_t exponent = (h >> 10) & 0x1fu;
  uint32_t mantissa = h & 0x3ffu;
  uint32_t bits;
  if (exponent == 0x1f) {
    // A NaN becomes quiet, as the hardware's conversion makes it.
    bits = sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else if (mantissa == 0) {
    bits = sign;
  } else {  // subnormal: normalise
    int shift = __builtin_clz(mantissa) - 21;
    bits = sign | ((113u - static_cast<uint32_t>(shift)) << 23) | ((mantissa << (shift + 13)) & 0x7fffffu);
  }
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

[[maybe_unused]] static inline uint16_t F32ToF16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude >= 0x38800000u) {
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);  // below half the least subnormal
  uint32_t shift = 126u - (magnitude >> 23);                        // 14 .. 24
  uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  uint32_t half = 1u << (shift - 1);
  uint32_t rounded = mantissa + half - 1 + ((mantissa >> shift) & 1u);
  return static_cast<uint16_t>(sign | (rounded >> shift));
}

[[maybe_unused]] static inline float BF16ToF32(uint16_t h) {
  uint32_t bits = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

}  // namespace lockstep::kernels::ref
