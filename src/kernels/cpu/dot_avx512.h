// The exact integer dot product of a block with AVX-512 VNNI. The contract is dot_generic.h's.
#pragma once

namespace lockstep::kernels::LS_ISA {

// Eight rows hold 8 float and 8 integer accumulators and the unpacked weights in the 32 registers.
inline constexpr int kMaxTileRows = 8;

inline __m512i BroadcastQuad(const int8_t* x) {
  int32_t quad;
  __builtin_memcpy(&quad, x, 4);
  return _mm512_set1_epi32(quad);
}

template <int R>
inline void DotQ4(const uint8_t* w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R]) {
  const __m512i low = _mm512_set1_epi8(15);
  for (int r = 0; r < R; ++r) sum[r] = SetI(0);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    __m512i packed = _mm512_loadu_si512(w + v * 64);
    __m512i a = _mm512_and_si512(packed, low);
    __m512i b = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      sum[r] = _mm512_dpbusd_epi32(sum[r], a, BroadcastQuad(x + r * ld_x + 4 * v));
      sum[r] = _mm512_dpbusd_epi32(sum[r], b, BroadcastQuad(x + r * ld_x + 16 + 4 * v));
    }
  }
}

template <int R>
inline void DotQ8(const uint8_t* w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R]) {
  for (int r = 0; r < R; ++r) sum[r] = SetI(0);
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
    __m512i a = _mm512_loadu_si512(w + v * 64);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      sum[r] = _mm512_dpbusd_epi32(sum[r], a, BroadcastQuad(x + r * ld_x + 4 * v));
    }
  }
}

}  // namespace lockstep::kernels::LS_ISA
