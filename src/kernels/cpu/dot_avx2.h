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

// Shifts left, or right where kBits is negative; what crosses the bytes is masked off by the caller.
template <int kBits>
inline __m256i Shift(__m256i a) {
  if constexpr (kBits < 0) {
    return _mm256_srli_epi32(a, -kBits);
  } else {
    return _mm256_slli_epi32(a, kBits);
  }
}

// Half (outputs 0-7 or 8-15: w is 32 bytes further) of the vectors kV and kV + 4 of a block of 4, 5 or 6 bits.
template <int kBits, int kV>
LS_INLINE void UnpackPair(const uint8_t* w, __m256i* first, __m256i* second) {
  const __m256i low = _mm256_set1_epi8(15);
  const __m256i packed = LoadBytes(w + kV * 64);
  *first = _mm256_and_si256(packed, low);
  *second = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low);
  if constexpr (kBits == 5) {
    const __m256i high = LoadBytes(w + 256), bit = _mm256_set1_epi8(16);
    *first = _mm256_or_si256(*first, _mm256_and_si256(Shift<4 - kV>(high), bit));
    *second = _mm256_or_si256(*second, _mm256_and_si256(Shift<-kV>(high), bit));
  }
  if constexpr (kBits == 6) {
    const __m256i pair = _mm256_set1_epi8(48);
    *first = _mm256_or_si256(*first, _mm256_and_si256(Shift<4 - 2 * kV>(LoadBytes(w + 256)), pair));
    *second = _mm256_or_si256(*second, _mm256_and_si256(Shift<4 - 2 * kV>(LoadBytes(w + 320)), pair));
  }
}

template <int kBits, int kV, int R>
LS_INLINE void DotPair(const uint8_t* w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i a_lo, a_hi, b_lo, b_hi;
  UnpackPair<kBits, kV>(w, &a_lo, &b_lo);
  UnpackPair<kBits, kV>(w + 32, &a_hi, &b_hi);
  LS_UNROLL for (int r = 0; r < R; ++r) {
    __m256i xa = BroadcastQuad(x + r * ld_x + 4 * kV);
    __m256i xb = BroadcastQuad(x + r * ld_x + 16 + 4 * kV);
    // 4 * 31 * 127 fits 16 bits, so both quads are paired before the widening.
    __m256i lo = _mm256_add_epi16(_mm256_maddubs_epi16(a_lo, xa), _mm256_maddubs_epi16(b_lo, xb));
    __m256i hi = _mm256_add_epi16(_mm256_maddubs_epi16(a_hi, xa), _mm256_maddubs_epi16(b_hi, xb));
    sum[r].lo = _mm256_add_epi32(sum[r].lo, _mm256_madd_epi16(lo, ones));
    sum[r].hi = _mm256_add_epi32(sum[r].hi, _mm256_madd_epi16(hi, ones));
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

template <int kBits, int R, int G>
LS_INLINE void Dot(const uint8_t* w, int64_t ld_w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R * G]) {
  static_assert(G == 1);
  if constexpr (kBits == 8) {
    DotQ8<R, G>(w, ld_w, x, ld_x, sum);
  } else {
    DotPair<kBits, 0, R>(w, x, ld_x, sum);
    DotPair<kBits, 1, R>(w, x, ld_x, sum);
    DotPair<kBits, 2, R>(w, x, ld_x, sum);
    DotPair<kBits, 3, R>(w, x, ld_x, sum);
  }
}

// A 16-bit pair (p, q) in every lane.
inline __m256i SetPair(int32_t p, int32_t q) {
  return _mm256_set1_epi32((p & 0xffff) | static_cast<int32_t>(static_cast<uint32_t>(q) << 16));
}

// The vectors kV, kV + 1 of the first half and of the second.
template <int kV, int R>
LS_INLINE void DotHalfPairs(const uint8_t* w, const I32x16 (&scale)[2], const int8_t* x, int64_t ld_x,
                            I32x16 (&sum)[R]) {
  __m256i lo[2][2], hi[2][2];  // [half][vector]
  UnpackPair<6, kV>(w, &lo[0][0], &lo[1][0]);
  UnpackPair<6, kV + 1>(w, &lo[0][1], &lo[1][1]);
  UnpackPair<6, kV>(w + 32, &hi[0][0], &hi[1][0]);
  UnpackPair<6, kV + 1>(w + 32, &hi[0][1], &hi[1][1]);
  LS_UNROLL for (int half = 0; half < 2; ++half) {
    LS_UNROLL for (int r = 0; r < R; ++r) {
      const __m256i xa = BroadcastQuad(x + r * ld_x + half * 16 + 4 * kV);
      const __m256i xb = BroadcastQuad(x + r * ld_x + half * 16 + 4 * kV + 4);
      // 4 * 63 * 127 fits 16 bits too, and the widening multiplies by the half's scale.
      __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(lo[half][0], xa), _mm256_maddubs_epi16(lo[half][1], xb));
      __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(hi[half][0], xa), _mm256_maddubs_epi16(hi[half][1], xb));
      sum[r].lo = _mm256_add_epi32(sum[r].lo, _mm256_madd_epi16(a, scale[half].lo));
      sum[r].hi = _mm256_add_epi32(sum[r].hi, _mm256_madd_epi16(b, scale[half].hi));
    }
  }
}

template <int R, int G>
LS_INLINE void DotHalves(const uint8_t* w, const int8_t* w_scales, int64_t, const int8_t* x, int64_t ld_x,
                         const int32_t* x_sum, const int32_t* x_half_sum, int64_t ld_block, F32x16 (&isum)[R * G]) {
  static_assert(G == 1);
  I32x16 scale[2], sum[R];
  LS_UNROLL for (int half = 0; half < 2; ++half) {  // each lane's scale as two equal 16-bit values
    I32x16 wide = LoadI8(w_scales + 16 * half);
    scale[half].lo =
        _mm256_or_si256(_mm256_slli_epi32(wide.lo, 16), _mm256_and_si256(wide.lo, _mm256_set1_epi32(0xffff)));
    scale[half].hi =
        _mm256_or_si256(_mm256_slli_epi32(wide.hi, 16), _mm256_and_si256(wide.hi, _mm256_set1_epi32(0xffff)));
  }
  const __m256i both_lo = _mm256_blend_epi16(scale[0].lo, scale[1].lo, 0xaa);
  const __m256i both_hi = _mm256_blend_epi16(scale[0].hi, scale[1].hi, 0xaa);
  LS_UNROLL for (int r = 0; r < R; ++r) {  // -32 * (s0 * sum of the first half + s1 * sum of the second)
    const int32_t first = x_half_sum[r * ld_block];
    const __m256i halves = SetPair(first, x_sum[r * ld_block] - first);
    const __m256i zero = _mm256_setzero_si256();
    sum[r].lo = _mm256_sub_epi32(zero, _mm256_slli_epi32(_mm256_madd_epi16(both_lo, halves), 5));
    sum[r].hi = _mm256_sub_epi32(zero, _mm256_slli_epi32(_mm256_madd_epi16(both_hi, halves), 5));
  }
  DotHalfPairs<0, R>(w, scale, x, ld_x, sum);
  DotHalfPairs<2, R>(w, scale, x, ld_x, sum);
  LS_UNROLL for (int r = 0; r < R; ++r) isum[r] = ToF32(sum[r]);
}

}  // namespace lockstep::kernels::LS_ISA
