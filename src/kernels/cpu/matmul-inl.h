// Matmul of a few rows with a repacked weight: each lane owns an output and walks K in order.
//
// Shapes:  MatmulArgs in kernels.h
// Capture: yes
// Order:   leaf by leaf, block by block; inside a block an exact integer; leaves by the plan's postfix program
// Cost:    one row is bound by the memory that the weights come from, eight rows about equally by memory and by the
//          dot products (docs/results/cpu-kernels.md)
// Source:  ours
#pragma once

namespace lockstep::kernels::LS_ISA {

// The partial sums of one tile of R rows x G groups of 16 outputs, and the stack of the postfix
// program.
template <int R, int G>
struct LeafStack {
  F32x16 sums[4][R * G];  // depth of a tree of 8 leaves: at most 3 waiting and one on top
  int depth = 0;

  // The newest leaf stays in registers while it is merged: most leaves end a merge or the plan.
  void Finish(const LeafPlan& plan, int leaf, F32x16 (&acc)[R * G], const MatmulArgs& a, int row, int group) {
    for (int m = 0; m < plan.merges_after[leaf]; ++m) {
      --depth;
      LS_UNROLL for (int i = 0; i < R * G; ++i) acc[i] = Add(sums[depth][i], acc[i]);
    }
    if (plan.emit[leaf] < 0) {
      LS_UNROLL for (int i = 0; i < R * G; ++i) sums[depth][i] = acc[i];
      ++depth;
      return;
    }
    float* out = a.out[plan.emit[leaf]];
    LS_UNROLL for (int r = 0; r < R; ++r) {
      LS_UNROLL for (int g = 0; g < G; ++g) {
        Store(out + (row + r) * a.ld_out + (group + g) * 16, acc[r * G + g]);
      }
    }
  }
};

// kTopBytes: f16 values behind the scales, a block of 32 or, where kSuper, a superblock of eight.
template <int kBitsOf, int kOffsetOf, bool kHasMinOf, bool kSuperOf = false>
struct QuantTraits {
  static constexpr int kBits = kBitsOf, kQuantBytes = kBits * 64, kOffset = kOffsetOf;
  static constexpr bool kHasMin = kHasMinOf, kSuper = kSuperOf;
  static constexpr int kTopBytes = kSuper ? (kHasMin ? 64 : 32) : (kHasMin ? 32 : 0);
  static constexpr int kBlockBytes = kQuantBytes + 32 + (kSuper ? kTopBytes / 8 : kTopBytes);
};
template <DType kType>
struct QuantFormat;
template <>
struct QuantFormat<DType::kQ4_0> : QuantTraits<4, 8, false> {};
template <>
struct QuantFormat<DType::kQ4_1> : QuantTraits<4, 0, true> {};
template <>
struct QuantFormat<DType::kQ5_0> : QuantTraits<5, 16, false> {};
template <>
struct QuantFormat<DType::kQ5_1> : QuantTraits<5, 0, true> {};
template <>
struct QuantFormat<DType::kQ8_0> : QuantTraits<8, 128, false> {};
template <>
struct QuantFormat<DType::kQ4_K> : QuantTraits<4, 0, true, true> {};
template <>
struct QuantFormat<DType::kQ5_K> : QuantTraits<5, 0, true, true> {};
template <>
struct QuantFormat<DType::kQ6_K> : QuantTraits<6, 32, false, true> {};

// The scales and minima of a block of 16 outputs. The product with a superblock's value is exact.
template <DType kType>
inline void LoadScales(const uint8_t* scales, const uint8_t* tops, F32x16* scale, F32x16* min) {
  using Format = QuantFormat<kType>;
  if constexpr (kType == DType::kQ6_K) {
    *scale = LoadF16(reinterpret_cast<const uint16_t*>(tops));
  } else if constexpr (Format::kSuper) {
    *scale = Mul(LoadF16(reinterpret_cast<const uint16_t*>(tops)), ToF32(LoadU8(scales)));
    *min = Mul(LoadF16(reinterpret_cast<const uint16_t*>(tops + 32)), ToF32(LoadU8(scales + 16)));
  } else {
    *scale = LoadF16(reinterpret_cast<const uint16_t*>(scales));
    if constexpr (Format::kHasMin) *min = LoadF16(reinterpret_cast<const uint16_t*>(tops));
  }
}

// R rows x G neighbouring groups. kPrefetch: asks for one kPrefetch-th of `ahead`, the groups behind these, while it reads
// these (0: nothing). The hardware's prefetcher stops at 4 KiB, and a group's quants, scales and minima are three streams
// to it.
template <DType kType, int R, int G, int kPrefetch>
inline void QuantTile(const MatmulArgs& a, int group, int row, const uint8_t* ahead) {
  using Format = QuantFormat<kType>;
  const PackedMatrix& w = *a.weight;
  const int num_blocks = w.k / kBlock;
  const int64_t group_bytes = w.group_bytes;
  const uint8_t* quants = w.data + group * group_bytes;
  const uint8_t* scales = quants + num_blocks * Format::kQuantBytes;
  const uint8_t* tops = scales + num_blocks * 32;
  const QuantRows& x = *a.quant;
  const int64_t ld_q = x.ld_q, ld_block = x.ld_block;
  const int8_t* xq = x.q + row * ld_q;
  const float* x_scale = x.scale + row * ld_block;
  const float* x_scaled_sum = x.scaled_sum + row * ld_block;
  const int32_t* x_sum = x.sum + row * ld_block;
  const int32_t* x_half_sum = x.half_sum + row * ld_block;

  LeafStack<R, G> stack;
  int64_t b = 0;
  for (int leaf = 0; leaf < a.plan->num_leaves; ++leaf) {
    F32x16 acc[R * G];
    LS_UNROLL for (int i = 0; i < R * G; ++i) acc[i] = Set(0.0f);
    for (const int64_t end = a.plan->k_end[leaf] / kBlock; b < end; ++b) {
      if constexpr (kPrefetch > 0) {
        constexpr int kLines = Format::kBlockBytes * G / 64 / kPrefetch;
        LS_UNROLL for (int i = 0; i < kLines; ++i) Prefetch(ahead + (b * kLines + i) * 64);
      }
      const uint8_t* block = quants + b * Format::kQuantBytes;
      I32x16 sum[R * G];
      F32x16 sum_of_halves[R * G];  // Q6_K only
      if constexpr (kType == DType::kQ6_K) {
        const auto* halves = reinterpret_cast<const int8_t*>(scales + b * 32);
        DotHalves<R, G>(block, halves, group_bytes, xq + b * kBlock, ld_q, x_sum + b, x_half_sum + b, ld_block,
                        sum_of_halves);
      } else {
        // The offset of the stored weights is taken off first: the integers are exact in any order.
        LS_UNROLL for (int r = 0; r < R; ++r) {
          I32x16 start = OffsetSum<Format::kOffset>(x_sum + r * ld_block + b);
          LS_UNROLL for (int g = 0; g < G; ++g) sum[r * G + g] = start;
        }
        Dot<Format::kBits, R, G>(block, group_bytes, xq + b * kBlock, ld_q, sum);
      }
      const int64_t top = (Format::kSuper ? (b + w.block_phase) / 8 : b) * Format::kTopBytes;
      LS_UNROLL for (int g = 0; g < G; ++g) {
        F32x16 scale, min;
        LoadScales<kType>(scales + g * group_bytes + b * 32, tops + g * group_bytes + top, &scale, &min);
        LS_UNROLL for (int r = 0; r < R; ++r) {
          F32x16& out = acc[r * G + g];
          F32x16 both = Mul(scale, Set(x_scale[r * ld_block + b]));
          F32x16 isum;
          if constexpr (kType == DType::kQ6_K) {
            isum = sum_of_halves[r * G + g];
          } else {
            isum = ToF32(sum[r * G + g]);
          }
          out = Fma(isum, both, out);
          if constexpr (Format::kHasMin) out = Fma(min, Set(x_scaled_sum[r * ld_block + b]), out);
        }
      }
    }
    stack.Finish(*a.plan, leaf, acc, a, row, group);
  }
}

template <DType kType>
inline F32x16 LoadWeights(const uint8_t* p) {
  if constexpr (kType == DType::kF32) return Load(reinterpret_cast<const float*>(p));
  if constexpr (kType == DType::kF16) return LoadF16(reinterpret_cast<const uint16_t*>(p));
  if constexpr (kType == DType::kBF16) return LoadBF16(reinterpret_cast<const uint16_t*>(p));
}

template <DType kType, int R, int G>
inline void FloatTile(const MatmulArgs& a, int group, int row) {
  constexpr int64_t kBytes = 16 * GetDTypeInfo(kType).block_bytes;  // 16 outputs of one k
  const PackedMatrix& w = *a.weight;
  const uint8_t* data = w.data + group * w.group_bytes;
  const float* x = a.x + row * a.ld_x;
  LeafStack<R, G> stack;
  int k = 0;
  for (int leaf = 0; leaf < a.plan->num_leaves; ++leaf) {
    F32x16 acc[R * G];
    LS_UNROLL for (int i = 0; i < R * G; ++i) acc[i] = Set(0.0f);
    for (const int end = a.plan->k_end[leaf]; k < end; ++k) {
      LS_UNROLL for (int g = 0; g < G; ++g) {
        F32x16 weights = LoadWeights<kType>(data + g * w.group_bytes + k * kBytes);
        LS_UNROLL for (int r = 0; r < R; ++r) {
          acc[r * G + g] = Fma(weights, Set(x[r * a.ld_x + k]), acc[r * G + g]);
        }
      }
    }
    stack.Finish(*a.plan, leaf, acc, a, row, group);
  }
}

// `count` rows from `row` on, 1 <= count <= R.
template <DType kType, int R, int G, int kPrefetch>
inline void QuantRowsTile(const MatmulArgs& a, int group, int row, int count, const uint8_t* ahead) {
  if constexpr (R > 1) {
    if (count < R) return QuantRowsTile<kType, R - 1, G, kPrefetch>(a, group, row, count, ahead);
  }
  QuantTile<kType, R, G, kPrefetch>(a, group, row, ahead);
}

// The rows from `row` on against G groups, in as few tiles as hold them and all of about the same size: the last row of
// a tile costs less than the first, which unpacks the weights. Two tiles share the prefetch, so that memory is asked
// evenly. Behind the last group lie the bytes of some other matrix; a prefetch beyond mapped memory does nothing.
template <DType kType, int G, bool kPrefetch>
inline void QuantGroups(const MatmulArgs& a, int group, int row) {
  constexpr int kAll = kPrefetch ? 1 : 0, kHalf = kPrefetch ? 2 : 0;
  const int rows = a.rows - row, tiles = (rows + kMaxTileRows - 1) / kMaxTileRows;
  const uint8_t* ahead = a.weight->data + (group + G) * a.weight->group_bytes;
  if (tiles == 1) return QuantRowsTile<kType, kMaxTileRows, G, kAll>(a, group, row, rows, ahead);
  for (int i = 0; i < tiles; ++i) {
    const int left = tiles - i, count = (a.rows - row + left - 1) / left;
    if (i < 2) {
      QuantRowsTile<kType, kMaxTileRows, G, kHalf>(a, group, row, count, ahead + i * G * a.weight->group_bytes / 2);
    } else {
      QuantRowsTile<kType, kMaxTileRows, G, 0>(a, group, row, count, nullptr);
    }
    row += count;
  }
}

#ifdef LS_TILES
template <DType kType>
inline bool TileMatmul(const MatmulArgs& a);  // matmul_tiles-inl.h
#endif

template <DType kType>
inline void QuantMatmul(const MatmulArgs& a) {
#ifdef LS_TILES
  if constexpr (kType != DType::kQ6_K) {  // whose blocks have two scales: a tile would hold half as much
    if (TileMatmul<kType>(a)) return;
  }
#endif
  int group = a.group_begin;
  for (; group + kTileGroups <= a.group_end; group += kTileGroups) QuantGroups<kType, kTileGroups, true>(a, group, 0);
  if constexpr (kTileGroups > 1) {
    for (; group < a.group_end; ++group) QuantGroups<kType, 1, false>(a, group, 0);
  }
}

// Several groups at once, since a lane's chain of fused multiply-adds is bound by latency.
template <DType kType>
inline void FloatMatmul(const MatmulArgs& a) {
  int group = a.group_begin;
  for (; group + 4 <= a.group_end; group += 4) {
    int row = 0;
    for (; row + 2 <= a.rows; row += 2) FloatTile<kType, 2, 4>(a, group, row);
    if (row < a.rows) FloatTile<kType, 1, 4>(a, group, row);
  }
  for (; group < a.group_end; ++group) {
    for (int row = 0; row < a.rows; ++row) FloatTile<kType, 1, 1>(a, group, row);
  }
}

void Matmul(const MatmulArgs& a) {
  if (a.rows == 0) return;  // a chunk of a prompt whose logits nobody reads
  switch (a.weight->dtype) {
    case DType::kF32:
      return FloatMatmul<DType::kF32>(a);
    case DType::kF16:
      return FloatMatmul<DType::kF16>(a);
    case DType::kBF16:
      return FloatMatmul<DType::kBF16>(a);
    case DType::kQ4_0:
      return QuantMatmul<DType::kQ4_0>(a);
    case DType::kQ4_1:
      return QuantMatmul<DType::kQ4_1>(a);
    case DType::kQ5_0:
      return QuantMatmul<DType::kQ5_0>(a);
    case DType::kQ5_1:
      return QuantMatmul<DType::kQ5_1>(a);
    case DType::kQ8_0:
      return QuantMatmul<DType::kQ8_0>(a);
    case DType::kQ4_K:
      return QuantMatmul<DType::kQ4_K>(a);
    case DType::kQ5_K:
      return QuantMatmul<DType::kQ5_K>(a);
    case DType::kQ6_K:
      return QuantMatmul<DType::kQ6_K>(a);
  }
}

}  // namespace lockstep::kernels::LS_ISA
