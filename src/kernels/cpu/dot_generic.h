// The exact integer dot product of a block, plain C++. The contract, for all three files:
//   weights: G groups of 16 outputs interleaved, K in fours, as unsigned values (pack.h), ld_w bytes from group to group;
//   activations: R rows of int8 in [-127, 127].
//   sum[r * G + g] lane o += sum over the block's 32 elements of w[g][o][k] * x[r][k], an exact int32.
//   OffsetSum is where a sum starts: -kOffset * *x_sum in every lane, which makes up for weights stored with that offset.
#pragma once

namespace lockstep::kernels::LS_ISA {

inline constexpr int kMaxTileRows = 4;
inline constexpr int kTileGroups = 1;  // two would not fit the registers

template <int kOffset>
inline I32x16 OffsetSum(const int32_t* x_sum) {
  return SetI(-kOffset * *x_sum);
}

template <int R, int G>
inline void DotQ4(const uint8_t* w, int64_t ld_w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R * G]) {
  for (int i = 0; i < R * G; ++i) {
    const int8_t* xr = x + i / G * ld_x;
    const uint8_t* wg = w + i % G * ld_w;
    for (int v = 0; v < 4; ++v) {
      for (int o = 0; o < 16; ++o) {
        for (int t = 0; t < 4; ++t) {
          int packed = wg[v * 64 + o * 4 + t];
          sum[i].lane[o] += (packed & 15) * xr[4 * v + t] + (packed >> 4) * xr[16 + 4 * v + t];
        }
      }
    }
  }
}

template <int R, int G>
inline void DotQ8(const uint8_t* w, int64_t ld_w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R * G]) {
  for (int i = 0; i < R * G; ++i) {
    const int8_t* xr = x + i / G * ld_x;
    const uint8_t* wg = w + i % G * ld_w;
    for (int v = 0; v < 8; ++v) {
      for (int o = 0; o < 16; ++o) {
        for (int t = 0; t < 4; ++t) sum[i].lane[o] += wg[v * 64 + o * 4 + t] * xr[4 * v + t];
      }
    }
  }
}

}  // namespace lockstep::kernels::LS_ISA
