// The exact integer dot product of a block with AVX2. The contract is dot_generic.h's.
#pragma once

namespace lockstep::kernels::LS_ISA {

inline constexpr int kMaxTileRows = 4;
inline constexpr int kTileGroups = 1;  // two would not fit the 16 registers

// Adds four products a 32-bit lane. maddubs saturates its 16-bit pair sums: with w <= 128 the largest is 2 * 128 * 127
// = 32512, so it never does; wider weights are split by the caller.
inline __m256i DotQuad(__m256i sum, __m256i w, __m256i x) {
  __m256i pairs = _mm256_maddubs_epi16(w, x);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

inline __m256i BroadcastQuad(const int8_t* x) {
  int32_t quad;
  __builtin_memcpy(&quad, x, 4);
  return _mm256_set1_epi32(quad);
}

inline __m256i LoadBytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

template <int kOffset>
inline I32x16 OffsetSum(const int32_t* x_sum) {
  return SetI(-kOffset * *x_sum);
}

template <int R, int G>
inline void DotQ4(const uint8_t* w, int64_t, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R * G]) {
  static_assert(G == 1);
  const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  LS_UNROLL for (int v = 0; v < 4; ++v) {
    __m256i packed_lo = LoadBytes(w + v * 64), packed_hi = LoadBytes(w + v * 64 + 32);
    __m256i a_lo = _mm256_and_si256(packed_lo, low);
    __m256i a_hi = _mm256_and_si256(packed_hi, low);
    __m256i b_lo = _mm256_and_si256(_mm256_srli_epi16(packed_lo, 4), low);
    __m256i b_hi = _mm256_and_si256(_mm256_srli_epi16(packed_hi, 4), low);
    LS_UNROLL for (int r = 0; r < R; ++r) {
      __m256i xa = BroadcastQuad(x + r * ld_x + 4 * v);
      __m256i xb = BroadcastQuad(x + r * ld_x + 16 + 4 * v);
      // 4 * 15 * 127 fits 16 bits, so both quads are paired before the widening.
      __m256i lo = _mm256_add_epi16(_mm256_maddubs_epi16(a_lo, xa), _mm256_maddubs_epi16(b_lo, xb));
      __m256i hi = _mm256_add_epi16(_mm256_maddubs_epi16(a_hi, xa), _mm256_maddubs_epi16(b_hi, xb));
      sum[r].lo = _mm256_add_epi32(sum[r].lo, _mm256_madd_epi16(lo, ones));
      sum[r].hi = _mm256_add_epi32(sum[r].hi, _mm256_madd_epi16(hi, ones));
    }
  }
}

template <int R, int G>
inline void DotQ8(const uint8_t* w, int64_t, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R * G]) {
  static_assert(G == 1);
  const __m256i low = _mm256_set1_epi8(0x7f);
  // Not unrolled: GCC 12 would hoist loads out of the 16 registers (a fifth slower).
  for (int v = 0; v < 8; ++v) {
    __m256i w_lo = LoadBytes(w + v * 64), w_hi = LoadBytes(w + v * 64 + 32);
    __m256i w_lo_top = _mm256_andnot_si256(low, w_lo), w_hi_top = _mm256_andnot_si256(low, w_hi);
    w_lo = _mm256_and_si256(w_lo, low);
    w_hi = _mm256_and_si256(w_hi, low);
    LS_UNROLL for (int r = 0; r < R; ++r) {
      __m256i xr = BroadcastQuad(x + r * ld_x + 4 * v);
      sum[r].lo = DotQuad(DotQuad(sum[r].lo, w_lo, xr), w_lo_top, xr);
      sum[r].hi = DotQuad(DotQuad(sum[r].hi, w_hi, xr), w_hi_top, xr);
    }
  }
}

}  // namespace lockstep::kernels::LS_ISA
