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

template <int R, int G>
inline void DotQ4(const uint8_t* w, int64_t ld_w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R * G]) {
  const __m512i low = _mm512_set1_epi8(15);
  LS_UNROLL for (int v = 0; v < 4; ++v) {
    __m512i a[G], b[G];
    LS_UNROLL for (int g = 0; g < G; ++g) {
      __m512i packed = _mm512_loadu_si512(w + g * ld_w + v * 64);
      a[g] = _mm512_and_si512(packed, low);
      b[g] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low);
    }
    DotVectors<R, G>(a, x + 4 * v, ld_x, sum);
    DotVectors<R, G>(b, x + 16 + 4 * v, ld_x, sum);
  }
}

template <int R, int G>
inline void DotQ8(const uint8_t* w, int64_t ld_w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R * G]) {
  LS_UNROLL for (int v = 0; v < 8; ++v) {
    __m512i a[G];
    LS_UNROLL for (int g = 0; g < G; ++g) a[g] = _mm512_loadu_si512(w + g * ld_w + v * 64);
    DotVectors<R, G>(a, x + 4 * v, ld_x, sum);
  }
}

}  // namespace lockstep::kernels::LS_ISA
