// F32x16 in plain C++: sixteen lanes, the unit of the law. The same interface stands in vec_avx2.h and vec_avx512.h,
// and all three give the same bits for every operation, since each is one IEEE operation a lane.
//
// Included by exactly one translation unit an instruction set, inside namespace LS_ISA (see isa_generic.cc): nothing
// here may be shared between them, or the linker could pick code that the machine cannot run.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/ref/half.h"

namespace lockstep::kernels::LS_ISA {

struct F32x16 {
  float lane[16];
};
struct I32x16 {
  int32_t lane[16];
};

// How many sums of values, and queries' heads, a loop of attention holds at once.
inline constexpr int kValueVectors = 4;
inline constexpr int kScoreHeads = 1;

#define LS_LANES for (int i = 0; i < 16; ++i)

inline F32x16 Load(const float* p) {
  F32x16 r;
  LS_LANES r.lane[i] = p[i];
  return r;
}
inline void Store(float* p, F32x16 a) {
  LS_LANES p[i] = a.lane[i];
}
inline F32x16 Set(float x) {
  F32x16 r;
  LS_LANES r.lane[i] = x;
  return r;
}
inline F32x16 LoadF16(const uint16_t* p) {
  F32x16 r;
  LS_LANES r.lane[i] = ref::F16ToF32(p[i]);
  return r;
}
inline void StoreF16(uint16_t* p, F32x16 a) {
  LS_LANES p[i] = ref::F32ToF16(a.lane[i]);
}
inline F32x16 LoadBF16(const uint16_t* p) {
  F32x16 r;
  LS_LANES r.lane[i] = ref::BF16ToF32(p[i]);
  return r;
}
// One f16 in every lane.
inline F32x16 SetF16(uint16_t x) {
  return Set(ref::F16ToF32(x));
}
inline F32x16 Add(F32x16 a, F32x16 b) {
  LS_LANES a.lane[i] += b.lane[i];
  return a;
}
inline F32x16 Sub(F32x16 a, F32x16 b) {
  LS_LANES a.lane[i] -= b.lane[i];
  return a;
}
inline F32x16 Mul(F32x16 a, F32x16 b) {
  LS_LANES a.lane[i] *= b.lane[i];
  return a;
}
inline F32x16 Div(F32x16 a, F32x16 b) {
  LS_LANES a.lane[i] /= b.lane[i];
  return a;
}
// a * b + c, one rounding.
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  LS_LANES c.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]);
  return c;
}
// The larger of each pair; b where they compare equal or a is NaN (x86's rule).
inline F32x16 Max(F32x16 a, F32x16 b) {
  LS_LANES a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
// value where x < bound (false for NaN), else otherwise.
inline F32x16 SelectLess(F32x16 x, float bound, F32x16 value, F32x16 otherwise) {
  LS_LANES otherwise.lane[i] = x.lane[i] < bound ? value.lane[i] : otherwise.lane[i];
  return otherwise;
}
inline F32x16 SelectGreater(F32x16 x, float bound, F32x16 value, F32x16 otherwise) {
  LS_LANES otherwise.lane[i] = x.lane[i] > bound ? value.lane[i] : otherwise.lane[i];
  return otherwise;
}
inline I32x16 Bits(F32x16 a) {
  I32x16 r;
  std::memcpy(&r, &a, sizeof r);
  return r;
}
inline F32x16 FromBits(I32x16 a) {
  F32x16 r;
  std::memcpy(&r, &a, sizeof r);
  return r;
}
inline I32x16 SetI(int32_t x) {
  I32x16 r;
  LS_LANES r.lane[i] = x;
  return r;
}
inline I32x16 AddI(I32x16 a, I32x16 b) {
  LS_LANES a.lane[i] = static_cast<int32_t>(static_cast<uint32_t>(a.lane[i]) + static_cast<uint32_t>(b.lane[i]));
  return a;
}
inline I32x16 SubI(I32x16 a, I32x16 b) {
  LS_LANES a.lane[i] = static_cast<int32_t>(static_cast<uint32_t>(a.lane[i]) - static_cast<uint32_t>(b.lane[i]));
  return a;
}
inline I32x16 AndI(I32x16 a, I32x16 b) {
  LS_LANES a.lane[i] &= b.lane[i];
  return a;
}
inline I32x16 MaxI(I32x16 a, I32x16 b) {
  LS_LANES a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
template <int kBits>
inline I32x16 ShiftLeft(I32x16 a) {
  LS_LANES a.lane[i] = static_cast<int32_t>(static_cast<uint32_t>(a.lane[i]) << kBits);
  return a;
}
template <int kBits>
inline I32x16 ShiftRight(I32x16 a) {  // arithmetic
  LS_LANES a.lane[i] >>= kBits;
  return a;
}
inline F32x16 ToF32(I32x16 a) {
  F32x16 r;
  LS_LANES r.lane[i] = static_cast<float>(a.lane[i]);
  return r;
}
// Round half to even. The caller keeps |x| below 2^22.
inline I32x16 RoundToI32(F32x16 a) {
  I32x16 r;
  LS_LANES {
    float shifted = a.lane[i] + 12582912.0f;  // 1.5 * 2^23: the addition itself rounds half to even
    int32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    r.lane[i] = bits - 0x4B400000;
  }
  return r;
}
inline I32x16 LoadI32(const int32_t* p) {
  I32x16 r;
  LS_LANES r.lane[i] = p[i];
  return r;
}
// Sixteen bytes, widened.
inline I32x16 LoadU8(const uint8_t* p) {
  I32x16 r;
  LS_LANES r.lane[i] = p[i];
  return r;
}
inline I32x16 LoadI8(const int8_t* p) {
  I32x16 r;
  LS_LANES r.lane[i] = p[i];
  return r;
}
inline void StoreI32(int32_t* p, I32x16 a) {
  LS_LANES p[i] = a.lane[i];
}
// The low bytes of each lane.
inline void StoreI8(int8_t* p, I32x16 a) {
  LS_LANES p[i] = static_cast<int8_t>(a.lane[i]);
}
inline int32_t ReduceMaxI(I32x16 a) {
  int32_t m = a.lane[0];
  LS_LANES m = a.lane[i] > m ? a.lane[i] : m;
  return m;
}
inline int32_t ReduceAddI(I32x16 a) {
  uint32_t s = 0;
  LS_LANES s += static_cast<uint32_t>(a.lane[i]);
  return static_cast<int32_t>(s);
}
// The fixed tree of the canonical sum: lane i + lane i+8, then +4, +2, +1.
inline float ReduceTree(F32x16 a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.lane[i] += a.lane[i + half];
  }
  return a.lane[0];
}
// The largest lane; a NaN may or may not count (its row's result is NaN either way).
inline float ReduceMax(F32x16 a) {
  float m = a.lane[0];
  LS_LANES m = a.lane[i] > m ? a.lane[i] : m;
  return m;
}
// One round of the tree of sixteen vectors v[0..15] at once: v[i] and v[i + kStep] become one vector that holds the
// partial sums of both. Folding with 8, 4, 2, then 1 leaves ReduceTree(v[j]) in lane j; the order between is each
// file's own. Here, after a fold with kStep, key i + kStep * m lies in lanes kStep * m to kStep * m + kStep - 1.
template <int kStep>
inline F32x16 Fold(F32x16 a, F32x16 b) {
  F32x16 r;
  for (int group = 0; group < 8 / kStep; ++group) {
    const int from = group * kStep * 2, to = group * kStep;
    for (int i = 0; i < kStep; ++i) {
      // Keys i, i + 2 kStep, ... come from a, those between from b.
      r.lane[2 * to + i] = a.lane[from + i] + a.lane[from + kStep + i];
      r.lane[2 * to + kStep + i] = b.lane[from + i] + b.lane[from + kStep + i];
    }
  }
  return r;
}
inline void Prefetch(const void* p) {
  __builtin_prefetch(p);
}

#undef LS_LANES

}  // namespace lockstep::kernels::LS_ISA
