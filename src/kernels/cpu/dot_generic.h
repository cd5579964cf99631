// The exact integer dot product of a block, plain C++. The contract, for all three files:
//   weights: 16 outputs interleaved, K in fours, as unsigned values (pack.h); activations: int8 in [-127, 127].
//   sum[r] lane o <- sum over the block's 32 elements of w[o][k] * x[r][k], an exact int32.
#pragma once

namespace lockstep::kernels::LS_ISA {

inline constexpr int kMaxTileRows = 4;

template <int R>
inline void DotQ4(const uint8_t* w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R]) {
  for (int r = 0; r < R; ++r) {
    I32x16 s = SetI(0);
    const int8_t* xr = x + r * ld_x;
    for (int v = 0; v < 4; ++v) {
      for (int o = 0; o < 16; ++o) {
        for (int t = 0; t < 4; ++t) {
          int packed = w[v * 64 + o * 4 + t];
          s.lane[o] += (packed & 15) * xr[4 * v + t] + (packed >> 4) * xr[16 + 4 * v + t];
        }
      }
    }
    sum[r] = s;
  }
}

template <int R>
inline void DotQ8(const uint8_t* w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R]) {
  for (int r = 0; r < R; ++r) {
    I32x16 s = SetI(0);
    const int8_t* xr = x + r * ld_x;
    for (int v = 0; v < 8; ++v) {
      for (int o = 0; o < 16; ++o) {
        for (int t = 0; t < 4; ++t) s.lane[o] += w[v * 64 + o * 4 + t] * xr[4 * v + t];
      }
    }
    sum[r] = s;
  }
}

}  // namespace lockstep::kernels::LS_ISA
