// F32x16 as two 256-bit vectors. The contract is vec_generic.h's.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lockstep::kernels::LS_ISA {

struct F32x16 {
  __m256 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};

// Of the 16 registers of half a vector, 8 hold sums of values.
inline constexpr int kValueVectors = 4;
inline constexpr int kScoreHeads = 1;

inline F32x16 Load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void Store(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline F32x16 Set(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
inline F32x16 LoadF16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline void StoreF16(uint16_t* p, F32x16 a) {
  constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, kRound));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, kRound));
}
inline F32x16 LoadBF16(const uint16_t* p) {
  auto half = [](const uint16_t* q) {
    __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
  };
  return {half(p), half(p + 8)};
}
inline F32x16 SetF16(uint16_t x) {
  __m256 all = _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(x)));
  return {all, all};
}
inline F32x16 Add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline F32x16 Sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline F32x16 Mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline F32x16 Div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 Max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline F32x16 SelectLess(F32x16 x, float bound, F32x16 value, F32x16 otherwise) {
  __m256 limit = _mm256_set1_ps(bound);
  return {_mm256_blendv_ps(otherwise.lo, value.lo, _mm256_cmp_ps(x.lo, limit, _CMP_LT_OQ)),
          _mm256_blendv_ps(otherwise.hi, value.hi, _mm256_cmp_ps(x.hi, limit, _CMP_LT_OQ))};
}
inline F32x16 SelectGreater(F32x16 x, float bound, F32x16 value, F32x16 otherwise) {
  __m256 limit = _mm256_set1_ps(bound);
  return {_mm256_blendv_ps(otherwise.lo, value.lo, _mm256_cmp_ps(x.lo, limit, _CMP_GT_OQ)),
          _mm256_blendv_ps(otherwise.hi, value.hi, _mm256_cmp_ps(x.hi, limit, _CMP_GT_OQ))};
}
inline I32x16 Bits(F32x16 a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
inline F32x16 FromBits(I32x16 a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
inline I32x16 SetI(int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
inline I32x16 AddI(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline I32x16 SubI(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
inline I32x16 AndI(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline I32x16 MaxI(I32x16 a, I32x16 b) {
  return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
template <int kBits>
inline I32x16 ShiftLeft(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
template <int kBits>
inline I32x16 ShiftRight(I32x16 a) {
  return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
}
inline F32x16 ToF32(I32x16 a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
// The control word rounds half to even: no thread of Lockstep changes it (base/fp_env.h sets and checks it).
inline I32x16 RoundToI32(F32x16 a) {
  return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
inline I32x16 LoadI32(const int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
inline I32x16 LoadU8(const uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline I32x16 LoadI8(const int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline void StoreI32(int32_t* p, I32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
inline void StoreI8(int8_t* p, I32x16 a) {
  // Masked to bytes first, so that the saturating packs keep the low byte of each lane.
  __m256i mask = _mm256_set1_epi32(0xff);
  __m256i words = _mm256_packus_epi32(_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask));
  words = _mm256_permute4x64_epi64(words, 0xd8);
  __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
inline int32_t ReduceMaxI(I32x16 a) {
  int32_t lanes[16];
  StoreI32(lanes, a);
  int32_t m = lanes[0];
  for (int i = 1; i < 16; ++i) m = lanes[i] > m ? lanes[i] : m;
  return m;
}
inline int32_t ReduceAddI(I32x16 a) {
  __m256i s = _mm256_add_epi32(a.lo, a.hi);
  __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1));
  return _mm_cvtsi128_si32(t);
}
inline float ReduceTree(F32x16 a) {
  __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
inline float ReduceMax(F32x16 a) {
  __m256 m8 = _mm256_max_ps(a.lo, a.hi);
  __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
  __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}
// 128-bit blocks are lo.low, lo.high, hi.low, hi.high.
template <int kStep>
inline F32x16 Fold(F32x16 a, F32x16 b) {
  auto in_blocks = [](F32x16 x, F32x16 y) -> F32x16 {
    if constexpr (kStep == 2) {  // inside each block: x, x, y, y
      return {_mm256_add_ps(_mm256_blend_ps(x.lo, y.lo, 0xcc), _mm256_shuffle_ps(x.lo, y.lo, 0x4e)),
              _mm256_add_ps(_mm256_blend_ps(x.hi, y.hi, 0xcc), _mm256_shuffle_ps(x.hi, y.hi, 0x4e))};
    } else {  // keys 0, 2, 1, 3 of a block: brought into order
      __m256 lo = _mm256_add_ps(_mm256_shuffle_ps(x.lo, y.lo, 0x88), _mm256_shuffle_ps(x.lo, y.lo, 0xdd));
      __m256 hi = _mm256_add_ps(_mm256_shuffle_ps(x.hi, y.hi, 0x88), _mm256_shuffle_ps(x.hi, y.hi, 0xdd));
      return {_mm256_permute_ps(lo, 0xd8), _mm256_permute_ps(hi, 0xd8)};
    }
  };
  if constexpr (kStep == 8) {
    return {_mm256_add_ps(a.lo, a.hi), _mm256_add_ps(b.lo, b.hi)};
  } else if constexpr (kStep == 4) {  // blocks become keys 0, 4, 8, 12: a and b below, a and b above
    return {_mm256_add_ps(_mm256_blend_ps(a.lo, b.lo, 0xf0), _mm256_permute2f128_ps(a.lo, b.lo, 0x21)),
            _mm256_add_ps(_mm256_blend_ps(a.hi, b.hi, 0xf0), _mm256_permute2f128_ps(a.hi, b.hi, 0x21))};
  } else {
    return in_blocks(a, b);
  }
}
// Always inlined: GCC 12 takes a function that only prefetches for one without effect and drops the calls of it.
LS_INLINE void Prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

}  // namespace lockstep::kernels::LS_ISA
