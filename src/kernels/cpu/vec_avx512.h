// F32x16 as one 512-bit vector. The contract is vec_generic.h's.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lockstep::kernels::LS_ISA {

using F32x16 = __m512;
using I32x16 = __m512i;

// Of the 32 registers, 16 hold sums of values; two heads' queries of Dh = 64 leave enough for the tree of scores.
inline constexpr int kValueVectors = 16;
inline constexpr int kScoreHeads = 2;

inline F32x16 Load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void Store(float* p, F32x16 a) {
  _mm512_storeu_ps(p, a);
}
inline F32x16 Set(float x) {
  return _mm512_set1_ps(x);
}
inline F32x16 LoadF16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void StoreF16(uint16_t* p, F32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline F32x16 LoadBF16(const uint16_t* p) {
  __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
inline F32x16 SetF16(uint16_t x) {
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(x)));
}
inline F32x16 Add(F32x16 a, F32x16 b) {
  return _mm512_add_ps(a, b);
}
inline F32x16 Sub(F32x16 a, F32x16 b) {
  return _mm512_sub_ps(a, b);
}
inline F32x16 Mul(F32x16 a, F32x16 b) {
  return _mm512_mul_ps(a, b);
}
inline F32x16 Div(F32x16 a, F32x16 b) {
  return _mm512_div_ps(a, b);
}
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline F32x16 Max(F32x16 a, F32x16 b) {
  return _mm512_max_ps(a, b);
}
inline F32x16 SelectLess(F32x16 x, float bound, F32x16 value, F32x16 otherwise) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, Set(bound), _CMP_LT_OQ), otherwise, value);
}
inline F32x16 SelectGreater(F32x16 x, float bound, F32x16 value, F32x16 otherwise) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, Set(bound), _CMP_GT_OQ), otherwise, value);
}
inline I32x16 Bits(F32x16 a) {
  return _mm512_castps_si512(a);
}
inline F32x16 FromBits(I32x16 a) {
  return _mm512_castsi512_ps(a);
}
inline I32x16 SetI(int32_t x) {
  return _mm512_set1_epi32(x);
}
inline I32x16 AddI(I32x16 a, I32x16 b) {
  return _mm512_add_epi32(a, b);
}
inline I32x16 SubI(I32x16 a, I32x16 b) {
  return _mm512_sub_epi32(a, b);
}
inline I32x16 AndI(I32x16 a, I32x16 b) {
  return _mm512_and_si512(a, b);
}
inline I32x16 MaxI(I32x16 a, I32x16 b) {
  return _mm512_max_epi32(a, b);
}
template <int kBits>
inline I32x16 ShiftLeft(I32x16 a) {
  return _mm512_slli_epi32(a, kBits);
}
template <int kBits>
inline I32x16 ShiftRight(I32x16 a) {
  return _mm512_srai_epi32(a, kBits);
}
inline F32x16 ToF32(I32x16 a) {
  return _mm512_cvtepi32_ps(a);
}
inline I32x16 RoundToI32(F32x16 a) {
  return _mm512_cvt_roundps_epi32(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline I32x16 LoadI32(const int32_t* p) {
  return _mm512_loadu_si512(p);
}
inline I32x16 LoadU8(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline I32x16 LoadI8(const int8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void StoreI32(int32_t* p, I32x16 a) {
  _mm512_storeu_si512(p, a);
}
inline void StoreI8(int8_t* p, I32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}
inline int32_t ReduceMaxI(I32x16 a) {
  return _mm512_reduce_max_epi32(a);
}
inline int32_t ReduceAddI(I32x16 a) {
  return _mm512_reduce_add_epi32(a);
}
inline float ReduceTree(F32x16 a) {
  __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
inline float ReduceMax(F32x16 a) {
  return _mm512_reduce_max_ps(a);
}
// Lanes x + (x+8): the result holds a's sums below and b's above. A blend costs less than a shuffle, and a sum of two
// does not care which comes first.
template <int kStep>
inline F32x16 Fold(F32x16 a, F32x16 b) {
  if constexpr (kStep == 8) {
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
  } else if constexpr (kStep == 4) {  // 128-bit blocks become a low, a high, b low, b high
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  } else if constexpr (kStep == 2) {  // inside each block: a, a, b, b
    return _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, a, b), _mm512_shuffle_ps(a, b, 0x4e));
  } else {  // blocks 0, 8, 4, 12 of keys 0, 2, 1, 3: brought into order
    F32x16 sum = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
    return _mm512_permutexvar_ps(_mm512_set_epi32(15, 13, 14, 12, 7, 5, 6, 4, 11, 9, 10, 8, 3, 1, 2, 0), sum);
  }
}
// Always inlined: GCC 12 takes a function that only prefetches for one without effect and drops the calls of it.
LS_INLINE void Prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

}  // namespace lockstep::kernels::LS_ISA
