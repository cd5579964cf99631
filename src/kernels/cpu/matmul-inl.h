// Matmul of a few rows with a repacked weight: each lane owns an output and walks K in order.
//
// Shapes:  MatmulArgs in kernels.h
// Capture: yes
// Order:   leaf by leaf, block by block; inside a block an exact integer; leaves by the plan's postfix program
// Source:  ours
#pragma once

namespace lockstep::kernels::LS_ISA {

// The partial sums of one tile of R rows x G groups of 16 outputs, and the stack of the postfix program.
template <int R, int G>
struct LeafStack {
  F32x16 sums[4][R * G];  // depth of a tree of 8 leaves: at most 3 waiting and one on top
  int depth = 0;

  void Finish(const LeafPlan& plan, int leaf, const F32x16 (&acc)[R * G], const MatmulArgs& a, int row, int group) {
    for (int i = 0; i < R * G; ++i) sums[depth][i] = acc[i];
    ++depth;
    for (int m = 0; m < plan.merges_after[leaf]; ++m) {
      --depth;
      for (int i = 0; i < R * G; ++i) sums[depth - 1][i] = Add(sums[depth - 1][i], sums[depth][i]);
    }
    if (plan.emit[leaf] < 0) return;
    float* out = a.out[plan.emit[leaf]];
    for (int r = 0; r < R; ++r) {
      for (int g = 0; g < G; ++g) {
        Store(out + (row + r) * a.ld_out + (group + g) * 16, sums[0][r * G + g]);
      }
    }
    depth = 0;
  }
};

template <DType kType>
struct QuantFormat;
template <>
struct QuantFormat<DType::kQ4_0> {
  static constexpr int kQuantBytes = 256, kOffset = 8;
  static constexpr bool kHasMin = false;
};
template <>
struct QuantFormat<DType::kQ4_1> {
  static constexpr int kQuantBytes = 256, kOffset = 0;
  static constexpr bool kHasMin = true;
};
template <>
struct QuantFormat<DType::kQ8_0> {
  static constexpr int kQuantBytes = 512, kOffset = 128;
  static constexpr bool kHasMin = false;
};

template <DType kType, int R>
inline void QuantTile(const MatmulArgs& a, int group, int row) {
  using Format = QuantFormat<kType>;
  const PackedMatrix& w = *a.weight;
  const int num_blocks = w.k / kBlock;
  const uint8_t* quants = w.data + group * w.group_bytes;
  const auto* scales = reinterpret_cast<const uint16_t*>(quants + num_blocks * Format::kQuantBytes);
  const uint16_t* mins = scales + num_blocks * 16;
  const QuantRows& x = *a.quant;
  const int8_t* xq = x.q + row * x.ld_q;
  const float* x_scale = x.scale + row * x.ld_block;
  const float* x_scaled_sum = x.scaled_sum + row * x.ld_block;
  const int32_t* x_sum = x.sum + row * x.ld_block;

  LeafStack<R, 1> stack;
  int b = 0;
  for (int leaf = 0; leaf < a.plan->num_leaves; ++leaf) {
    F32x16 acc[R];
    for (int r = 0; r < R; ++r) acc[r] = Set(0.0f);
    for (const int end = a.plan->k_end[leaf] / kBlock; b < end; ++b) {
      I32x16 sum[R];
      if constexpr (kType == DType::kQ8_0) {
        DotQ8<R>(quants + b * 512, xq + b * kBlock, x.ld_q, sum);
      } else {
        DotQ4<R>(quants + b * 256, xq + b * kBlock, x.ld_q, sum);
      }
      F32x16 scale = LoadF16(scales + b * 16);
      F32x16 min;
      if constexpr (Format::kHasMin) min = LoadF16(mins + b * 16);
      for (int r = 0; r < R; ++r) {
        if constexpr (Format::kOffset != 0) {
          sum[r] = SubI(sum[r], SetI(Format::kOffset * x_sum[r * x.ld_block + b]));
        }
        F32x16 both = Mul(scale, Set(x_scale[r * x.ld_block + b]));
        acc[r] = Fma(ToF32(sum[r]), both, acc[r]);
        if constexpr (Format::kHasMin) {
          acc[r] = Fma(min, Set(x_scaled_sum[r * x.ld_block + b]), acc[r]);
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
    for (int i = 0; i < R * G; ++i) acc[i] = Set(0.0f);
    for (const int end = a.plan->k_end[leaf]; k < end; ++k) {
      for (int g = 0; g < G; ++g) {
        F32x16 weights = LoadWeights<kType>(data + g * w.group_bytes + k * kBytes);
        for (int r = 0; r < R; ++r) {
          acc[r * G + g] = Fma(weights, Set(x[r * a.ld_x + k]), acc[r * G + g]);
        }
      }
    }
    stack.Finish(*a.plan, leaf, acc, a, row, group);
  }
}

template <DType kType>
inline void QuantMatmul(const MatmulArgs& a) {
  for (int group = a.group_begin; group < a.group_end; ++group) {
    int row = 0;
    if constexpr (kMaxTileRows >= 8) {
      for (; row + 8 <= a.rows; row += 8) QuantTile<kType, 8>(a, group, row);
    }
    for (; row + 4 <= a.rows; row += 4) QuantTile<kType, 4>(a, group, row);
    switch (a.rows - row) {
      case 3:
        QuantTile<kType, 3>(a, group, row);
        break;
      case 2:
        QuantTile<kType, 2>(a, group, row);
        break;
      case 1:
        QuantTile<kType, 1>(a, group, row);
        break;
      default:
        break;
    }
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
    case DType::kQ8_0:
      return QuantMatmul<DType::kQ8_0>(a);
  }
}

}  // namespace lockstep::kernels::LS_ISA
