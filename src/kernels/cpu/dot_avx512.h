// The exact integer dot product of a block with AVX-512 VNNI. The contract is dot_generic.h's.
#pragma once

namespace lockstep::kernels::LS_ISA {

// Six rows of two groups hold 12 float and 12 integer accumulators, the unpacked weights of two groups and a broadcast in
// the 32 registers; the groups share each broadcast of activations.
inline constexpr int kMaxTileRows = 6;
inline constexpr int kTileGroups = 2;

template <int kOffset>
inline __m512i OffsetSum(const int32_t* x_sum) {
  if constexpr (kOffset == 0) return _mm512_setzero_si512();
  // The sum of 32 int8 fits 16 bits: the lower half of each lane times -kOffset, the upper times 0.
  return _mm512_madd_epi16(_mm512_set1_epi32(*x_sum), _mm512_set1_epi32(-kOffset & 0xffff));
}

inline __m512i BroadcastQuad(const int8_t* x) {
  int32_t quad;
  __builtin_memcpy(&quad, x, 4);
  return _mm512_set1_epi32(quad);
}

// One instruction that broadcasts from memory; GCC 12 would load into a register first.
inline __m512i DotQuad(__m512i sum, __m512i w, const int8_t* x) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const int32_t*>(x)));
  return sum;
}

template <int R, int G>
inline void DotVectors(const __m512i (&w)[G], const int8_t* x, int64_t ld_x, I32x16 (&sum)[R * G]) {
  LS_UNROLL for (int r = 0; r < R; ++r) {
    if constexpr (G == 1) {
      sum[r] = DotQuad(sum[r], w[0], x + r * ld_x);
    } else {
      const __m512i quad = BroadcastQuad(x + r * ld_x);
      LS_UNROLL for (int g = 0; g < G; ++g) {
        sum[r * G + g] = _mm512_dpbusd_epi32(sum[r * G + g], w[g], quad);
      }
    }
  }
}

// Shifts left, or right where kBits is negative; what crosses the bytes is masked off by the caller.
template <int kBits>
inline __m512i Shift(__m512i a) {
  if constexpr (kBits < 0) {
    return _mm512_srli_epi32(a, -kBits);
  } else {
    return _mm512_slli_epi32(a, kBits);
  }
}

// a | (b & c)
inline __m512i OrMasked(__m512i a, __m512i b, __m512i c) {
  return _mm512_ternarylogic_epi32(a, b, c, 0xf8);
}

// The vectors kV and kV + 4 of a packed block: byte o*4 + t is element 4v+t of output o, unsigned.
template <int kBits, int kV>
LS_INLINE void UnpackPair(const uint8_t* w, __m512i* first, __m512i* second) {
  if constexpr (kBits == 8) {
    *first = _mm512_loadu_si512(w + kV * 64);
    *second = _mm512_loadu_si512(w + (kV + 4) * 64);
    return;
  }
  const __m512i low = _mm512_set1_epi8(15);
  const __m512i packed = _mm512_loadu_si512(w + kV * 64);
  *first = _mm512_and_si512(packed, low);
  *second = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low);
  if constexpr (kBits == 5) {
    const __m512i high = _mm512_loadu_si512(w + 256), bit = _mm512_set1_epi8(16);
    *first = OrMasked(*first, Shift<4 - kV>(high), bit);
    *second = OrMasked(*second, Shift<-kV>(high), bit);
  }
  if constexpr (kBits == 6) {
    const __m512i pair = _mm512_set1_epi8(48);
    *first = OrMasked(*first, Shift<4 - 2 * kV>(_mm512_loadu_si512(w + 256)), pair);
    *second = OrMasked(*second, Shift<4 - 2 * kV>(_mm512_loadu_si512(w + 320)), pair);
  }
}

template <int kBits, int kV, int R, int G>
LS_INLINE void DotPair(const uint8_t* w, int64_t ld_w, const int8_t* x, int64_t ld_x, I32x16 (&first)[R * G],
                       I32x16 (&second)[R * G]) {
  __m512i a[G], b[G];
  LS_UNROLL for (int g = 0; g < G; ++g) UnpackPair<kBits, kV>(w + g * ld_w, &a[g], &b[g]);
  DotVectors<R, G>(a, x + 4 * kV, ld_x, first);
  DotVectors<R, G>(b, x + 16 + 4 * kV, ld_x, second);
}

// The vectors in order: a tenth faster at two and three rows than in pairs.
template <int R, int G>
inline void DotQ8(const uint8_t* w, int64_t ld_w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R * G]) {
  LS_UNROLL for (int v = 0; v < 8; ++v) {
    __m512i a[G];
    LS_UNROLL for (int g = 0; g < G; ++g) a[g] = _mm512_loadu_si512(w + g * ld_w + v * 64);
    DotVectors<R, G>(a, x + 4 * v, ld_x, sum);
  }
}

template <int kBits, int R, int G>
LS_INLINE void Dot(const uint8_t* w, int64_t ld_w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R * G]) {
  if constexpr (kBits == 8) {
    DotQ8<R, G>(w, ld_w, x, ld_x, sum);
    return;
  }
  DotPair<kBits, 0, R, G>(w, ld_w, x, ld_x, sum, sum);
  DotPair<kBits, 1, R, G>(w, ld_w, x, ld_x, sum, sum);
  DotPair<kBits, 2, R, G>(w, ld_w, x, ld_x, sum, sum);
  DotPair<kBits, 3, R, G>(w, ld_w, x, ld_x, sum, sum);
}

template <int R, int G>
LS_INLINE void DotHalves(const uint8_t* w, const int8_t* w_scales, int64_t ld_w, const int8_t* x, int64_t ld_x,
                         const int32_t* x_sum, const int32_t* x_half_sum, int64_t ld_block, F32x16 (&isum)[R * G]) {
  I32x16 first[R * G], second[R * G];
  LS_UNROLL for (int r = 0; r < R; ++r) {
    const I32x16 start = OffsetSum<32>(x_half_sum + r * ld_block);
    const I32x16 rest = SubI(OffsetSum<32>(x_sum + r * ld_block), start);
    LS_UNROLL for (int g = 0; g < G; ++g) {
      first[r * G + g] = start;
      second[r * G + g] = rest;
    }
  }
  DotPair<6, 0, R, G>(w, ld_w, x, ld_x, first, second);
  DotPair<6, 1, R, G>(w, ld_w, x, ld_x, first, second);
  DotPair<6, 2, R, G>(w, ld_w, x, ld_x, first, second);
  DotPair<6, 3, R, G>(w, ld_w, x, ld_x, first, second);
  LS_UNROLL for (int g = 0; g < G; ++g) {
    const F32x16 s0 = ToF32(LoadI8(w_scales + g * ld_w)), s1 = ToF32(LoadI8(w_scales + g * ld_w + 16));
    // Every term is an integer below 2^24, so the floats are as exact as integers and cheaper to multiply.
    LS_UNROLL for (int i = g; i < R * G; i += G) {
      isum[i] = Fma(ToF32(first[i]), s0, Mul(ToF32(second[i]), s1));
    }
  }
}

}  // namespace lockstep::kernels::LS_ISA
