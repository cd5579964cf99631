// Matmul of many rows with AMX tiles: the integers of a block come from a tile, everything else is matmul-inl.h's.
//
// A block's 32 K of 16 outputs are unpacked to one tile of 8 x 64 bytes, 16 rows of activations are another, and their
// product is the block's exact integers. It is scaled and added in K order, as the law says, so a tile never spans two
// blocks and the bits are those of every other kernel.
//
// One product takes far longer than the work per block, and a tile can only read what has left the store buffer. So the
// blocks are a pipeline: while block b is scaled, block b + 1 is multiplied and block b + kAhead is unpacked.
//
// Shapes:  MatmulArgs in kernels.h
// Threads: any; the tile configuration is set and released inside a call
// Capture: yes
// Order:   as matmul-inl.h
// Source:  ours
#pragma once

namespace lockstep::kernels::LS_ISA {

// Fewer rows than this are no slower with vectors (docs/results/cpu-kernels.md).
inline constexpr int kMinTileRows = 12;
inline constexpr int kTileRows = 16;
inline constexpr int kAhead = 3;       // blocks from unpacking to multiplication, and one
inline constexpr int kWeightRing = 4;  // power of two, more than kAhead - 1
inline constexpr int kBlockTileBytes = 8 * 64;

// Tiles of a call: two products in turn, the activations and the weights; the rows left over have tiles of their size.
enum TileRole {
  kSum0 = 0,
  kSum1 = 1,
  kActivations = 2,
  kRestSum0 = 3,
  kRestSum1 = 4,
  kRestActivations = 5,
  kWeights = 6
};

// A block's weights as signed bytes in element order: vector v, byte o*4 + t is element 4v + t of output o.
template <DType kType>
LS_INLINE void UnpackBlock(const uint8_t* quants, uint8_t* to) {
  constexpr int kBits = QuantFormat<kType>::kBits, kOffset = QuantFormat<kType>::kOffset;
  auto pair = [&]<int kV>() __attribute__((always_inline)) {
    __m512i first, second;
    UnpackPair<kBits, kV>(quants, &first, &second);
    if constexpr (kOffset != 0) {
      const __m512i offset = _mm512_set1_epi8(static_cast<char>(kOffset));
      first = _mm512_sub_epi8(first, offset);
      second = _mm512_sub_epi8(second, offset);
    }
    _mm512_store_si512(to + kV * 64, first);
    _mm512_store_si512(to + (kV + 4) * 64, second);
  };
  pair.template operator()<0>();
  pair.template operator()<1>();
  pair.template operator()<2>();
  pair.template operator()<3>();
}

// R rows, 16 or the rows left over, against one group.
template <DType kType, int R>
inline void TileRowsOfGroup(const MatmulArgs& a, int group, int row, bool prefetch) {
  using Format = QuantFormat<kType>;
  constexpr bool kRest = R < kTileRows;
  constexpr int kA = kRest ? kRestActivations : kActivations;
  const PackedMatrix& w = *a.weight;
  const int64_t num_blocks = w.k / kBlock;
  const uint8_t* quants = w.data + group * w.group_bytes;
  const uint8_t* scales = quants + num_blocks * Format::kQuantBytes;
  const uint8_t* tops = scales + num_blocks * 32;
  const uint8_t* ahead = quants + w.group_bytes;
  const QuantRows& x = *a.quant;
  const int64_t ld_q = x.ld_q, ld_block = x.ld_block;
  const int8_t* xq = x.q + row * ld_q;
  const float* x_scale = x.scale + row * ld_block;
  const float* x_scaled_sum = x.scaled_sum + row * ld_block;
  alignas(64) uint8_t unpacked[kWeightRing][kBlockTileBytes];
  alignas(64) int32_t sums[2][R][16];

  auto unpack = [&](int64_t b) {
    if (b < num_blocks) UnpackBlock<kType>(quants + b * Format::kQuantBytes, unpacked[b % kWeightRing]);
  };
  auto multiply = [&]<int kParity>(int64_t b) {
    constexpr int kSum = (kRest ? kRestSum0 : kSum0) + kParity;
    TileLoad<kWeights>(unpacked[b % kWeightRing], 64);
    TileLoad<kA>(xq + b * kBlock, ld_q);
    TileZero<kSum>();
    TileDot<kSum, kA, kWeights>();
    TileStore<kSum>(sums[kParity], 64);
  };
  for (int64_t b = 0; b < kAhead; ++b) unpack(b);
  multiply.template operator()<0>(0);

  LeafStack<R, 1> stack;
  int64_t b = 0;
  for (int leaf = 0; leaf < a.plan->num_leaves; ++leaf) {
    F32x16 acc[R];
    LS_UNROLL for (int r = 0; r < R; ++r) acc[r] = Set(0.0f);
    for (const int64_t end = a.plan->k_end[leaf] / kBlock; b < end; ++b) {
      unpack(b + kAhead);
      if (b + 1 < num_blocks) {
        if (b % 2 == 0) {
          multiply.template operator()<1>(b + 1);
        } else {
          multiply.template operator()<0>(b + 1);
        }
      }
      if (prefetch) {
        constexpr int kLines = Format::kBlockBytes / 64;
        LS_UNROLL for (int i = 0; i < kLines; ++i) Prefetch(ahead + (b * kLines + i) * 64);
      }
      F32x16 scale, min;
      const int64_t top = (Format::kSuper ? (b + w.block_phase) / 8 : b) * Format::kTopBytes;
      LoadScales<kType>(scales + b * 32, tops + top, &scale, &min);
      const int32_t(*sum)[16] = sums[b % 2];
      LS_UNROLL for (int r = 0; r < R; ++r) {
        F32x16 both = Mul(scale, Set(x_scale[r * ld_block + b]));
        acc[r] = Fma(ToF32(LoadI32(sum[r])), both, acc[r]);
        if constexpr (Format::kHasMin) acc[r] = Fma(min, Set(x_scaled_sum[r * ld_block + b]), acc[r]);
      }
    }
    stack.Finish(*a.plan, leaf, acc, a, row, group);
  }
}

// The rows left over: exactly R of them, R from kMinTileRows to 15.
template <DType kType, int R>
inline void TileRestOfGroup(const MatmulArgs& a, int group, int row, bool prefetch) {
  if constexpr (R > kMinTileRows) {
    if (a.rows - row < R) return TileRestOfGroup<kType, R - 1>(a, group, row, prefetch);
  }
  TileRowsOfGroup<kType, R>(a, group, row, prefetch);
}

// False if the call is left to the vectors.
template <DType kType>
inline bool TileMatmul(const MatmulArgs& a) {
  if (a.rows < kMinTileRows) return false;
  const int rest = a.rows % kTileRows;
  const bool rest_in_tiles = rest >= kMinTileRows;
  const int rest_rows = rest_in_tiles ? rest : kTileRows;
  TileShapes shapes;
  shapes.Set(kWeights, 8, 64);
  shapes.Set(kActivations, kTileRows, kBlock);
  shapes.Set(kSum0, kTileRows, 64);
  shapes.Set(kSum1, kTileRows, 64);
  shapes.Set(kRestActivations, rest_rows, kBlock);
  shapes.Set(kRestSum0, rest_rows, 64);
  shapes.Set(kRestSum1, rest_rows, 64);
  TileConfigure(shapes);
  for (int group = a.group_begin; group < a.group_end; ++group) {
    int row = 0;
    for (; row + kTileRows <= a.rows; row += kTileRows) TileRowsOfGroup<kType, kTileRows>(a, group, row, row == 0);
    if (rest_in_tiles) {
      TileRestOfGroup<kType, kTileRows - 1>(a, group, row, row == 0);
    } else if (rest > 0) {
      QuantGroups<kType, 1, false>(a, group, row);
    }
  }
  TileRelease();
  return true;
}

}  // namespace lockstep::kernels::LS_ISA
