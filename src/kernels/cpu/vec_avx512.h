// F32x16 as one 512-bit vector. The contract is vec_generic.h's.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lockstep::kernels::LS_ISA {

using F32x16 = __m512;
using I32x16 = __m512i;

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
// Four rounds, each halving the number of vectors: fold(a, b) holds the half sums of a in its lower half of each group
// and those of b in its upper half, so that lane j of the last vector is the tree sum of v[j].
inline F32x16 ReduceTree16(const F32x16* v) {
  F32x16 eight[8], four[4], two[2];
  for (int i = 0; i < 8; ++i) {  // lanes x + (x+8): the result holds v[i] below and v[i+8] above
    F32x16 a = v[i], b = v[i + 8];
    eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  for (int i = 0; i < 4; ++i) {  // x + (x+4): 128-bit blocks become v[i], v[i+4], v[i+8], v[i+12]
    F32x16 a = eight[i], b = eight[i + 4];
    four[i] = _mm512_add_ps(
        _mm512_permutex2var_ps(a, _mm512_set_epi32(27, 26, 25, 24, 11, 10, 9, 8, 19, 18, 17, 16, 3, 2, 1, 0), b),
        _mm512_permutex2var_ps(a, _mm512_set_epi32(31, 30, 29, 28, 15, 14, 13, 12, 23, 22, 21, 20, 7, 6, 5, 4), b));
  }
  for (int i = 0; i < 2; ++i) {  // x + (x+2) inside each block
    F32x16 a = four[i], b = four[i + 2];
    two[i] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  // x + (x+1): pairs (v[i] low, v[i] high, v[i+2] low, v[i+2] high); the unpacking puts v[0..3] in order.
  F32x16 a = two[0], b = two[1];
  F32x16 even = _mm512_shuffle_ps(a, b, 0x88), odd = _mm512_shuffle_ps(a, b, 0xdd);
  F32x16 sum = _mm512_add_ps(even, odd);  // in each block: v[0], v[2], v[1], v[3] (plus 4 x block)
  return _mm512_permute_ps(sum, 0xd8);
}
inline void Prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

}  // namespace lockstep::kernels::LS_ISA
