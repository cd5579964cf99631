// The exact integer dot product of a block, plain C++. The contract, for all three files:
//   weights: G groups of 16 outputs interleaved, K in fours, as unsigned values (pack.h), ld_w bytes from group to group;
//   activations: R rows of int8 in [-127, 127].
//   Dot: sum[r * G + g] lane o += sum over the block's 32 elements of w[g][o][k] * x[r][k], an exact int32.
//   OffsetSum is where a sum starts: -kOffset * *x_sum in every lane, which makes up for weights stored with that offset.
//   DotHalves (Q6_K): isum[r * G + g] lane o = s0 * (sum of (w - 32) * x over the first 16) + s1 * (over the last 16), an
//   exact integer below 2^24 as a float. w_scales: int8 [2, 16] of the block, ld_w from group to group too.
#pragma once

namespace lockstep::kernels::LS_ISA {

inline constexpr int kMaxTileRows = 4;
inline constexpr int kTileGroups = 1;  // two would not fit the registers

template <int kOffset>
inline I32x16 OffsetSum(const int32_t* x_sum) {
  return SetI(-kOffset * *x_sum);
}

// The 32 quants of a block of 4, 5 or 6 bits as vectors: byte o*4 + t of vector v is element 4v+t of output o.
template <int kBits>
inline void Unpack(const uint8_t* w, uint8_t (&vectors)[8][64]) {
  for (int v = 0; v < 8; ++v) {
    for (int i = 0; i < 64; ++i) {
      int quant = (w[v % 4 * 64 + i] >> (v / 4 * 4)) & 15;
      if constexpr (kBits == 5) quant |= (w[256 + i] >> v & 1) << 4;
      if constexpr (kBits == 6) quant |= (w[256 + v / 4 * 64 + i] >> (v % 4 * 2) & 3) << 4;
      vectors[v][i] = static_cast<uint8_t>(quant);
    }
  }
}

inline void AddVector(const uint8_t* vector, const int8_t* x, I32x16& sum) {
  for (int o = 0; o < 16; ++o) {
    for (int t = 0; t < 4; ++t) sum.lane[o] += vector[o * 4 + t] * x[t];
  }
}

template <int kBits, int R, int G>
inline void Dot(const uint8_t* w, int64_t ld_w, const int8_t* x, int64_t ld_x, I32x16 (&sum)[R * G]) {
  for (int g = 0; g < G; ++g) {
    uint8_t unpacked[8][64];
    if constexpr (kBits < 8) Unpack<kBits>(w + g * ld_w, unpacked);
    const uint8_t* vectors = kBits < 8 ? unpacked[0] : w + g * ld_w;
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < 8; ++v) AddVector(vectors + v * 64, x + r * ld_x + 4 * v, sum[r * G + g]);
    }
  }
}

template <int R, int G>
inline void DotHalves(const uint8_t* w, const int8_t* w_scales, int64_t ld_w, const int8_t* x, int64_t ld_x,
                      const int32_t* x_sum, const int32_t* x_half_sum, int64_t ld_block, F32x16 (&isum)[R * G]) {
  for (int g = 0; g < G; ++g) {
    uint8_t vectors[8][64];
    Unpack<6>(w + g * ld_w, vectors);
    for (int r = 0; r < R; ++r) {
      const int32_t first = x_half_sum[r * ld_block], second = x_sum[r * ld_block] - first;
      I32x16 sum[2] = {SetI(-32 * first), SetI(-32 * second)};
      for (int v = 0; v < 8; ++v) AddVector(vectors[v], x + r * ld_x + 4 * v, sum[v / 4]);
      const int8_t* scales = w_scales + g * ld_w;
      for (int o = 0; o < 16; ++o) sum[0].lane[o] = sum[0].lane[o] * scales[o] + sum[1].lane[o] * scales[16 + o];
      isum[r * G + g] = ToF32(sum[0]);
    }
  }
}

}  // namespace lockstep::kernels::LS_ISA
