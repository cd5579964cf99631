// The cache's keys and values as an attention kernel reads them: widened to f32 in registers or once for several rows.
//
// Shapes:  a page is [kKvChunk] rows of Dh elements of the cache's type (kernels.h)
// Capture: yes
// Order:   element by element
// Source:  ours
#pragma once

namespace lockstep::kernels::LS_ISA {

// Bytes of a key or value row, as the cache keeps it (kernels.h).
template <DType kKv>
LS_INLINE int64_t KvRowBytes(int head_dim) {
  if constexpr (kKv == DType::kQ8_0) return head_dim + head_dim / kBlock * 2;
  return static_cast<int64_t>(head_dim) * (kKv == DType::kF16 ? 2 : 4);
}

// The keys or values at(0 .. n - 1) as f32 rows, then zeros up to a multiple of 16 rows.
template <DType kKv, class At>
inline void Widen(At at, int n, int head_dim, float* to) {
  for (int j = 0; j < n; ++j) {
    const void* from = at(j);
    float* row = to + j * head_dim;
    if constexpr (kKv == DType::kQ8_0) {
      const auto* q = static_cast<const int8_t*>(from);
      for (int i = 0; i < head_dim; i += kBlock) {
        uint16_t half;
        __builtin_memcpy(&half, q + head_dim + i / kBlock * 2, sizeof half);
        const F32x16 scale = SetF16(half);
        Store(row + i, Mul(ToF32(LoadI8(q + i)), scale));
        Store(row + i + 16, Mul(ToF32(LoadI8(q + i + 16)), scale));
      }
    } else if constexpr (kKv == DType::kF16) {
      for (int i = 0; i < head_dim; i += 16) Store(row + i, LoadF16(static_cast<const uint16_t*>(from) + i));
    } else {
      for (int i = 0; i < head_dim; i += 16) Store(row + i, Load(static_cast<const float*>(from) + i));
    }
  }
  for (int i = n * head_dim; i < (n + 15) / 16 * 16 * head_dim; i += 16) Store(to + i, Set(0.0f));
}

// The scales of the first n rows of a q8_0 page in f32, [n, Dh / 32], so that each head and row of the step reads them
// as they are. Rows behind n, up to a multiple of 16, may be anything. `to` holds one and a half times as many floats.
template <int kVectors>
inline void WidenScales(const char* page, int n, int head_dim, float* to) {
  const int dh = kVectors > 0 ? kVectors * 16 : head_dim, blocks = dh / kBlock;
  const int rows = (n + 15) / 16 * 16;
  auto* half = reinterpret_cast<char*>(to + kKvChunk * blocks);
  const char* scales = page + dh;
  for (int j = 0; j < rows; ++j) {
    __builtin_memcpy(half + j * blocks * 2, scales + j * KvRowBytes<DType::kQ8_0>(dh), static_cast<size_t>(blocks * 2));
  }
  for (int i = 0; i < rows * blocks; i += 16) {
    uint16_t sixteen[16];
    __builtin_memcpy(sixteen, half + i * 2, sizeof sixteen);
    Store(to + i, LoadF16(sixteen));
  }
}

// One side, keys or values, of the chunk that a row reads now: rows of Dh elements of type kKv, and for q8_0 their scales
// in f32. `next`, if not null, is the page behind it, asked for row by row while this one is used: a step's weights push
// the cache's pages out between two layers, a page is too short for the hardware's prefetcher, and all rows of a page at
// once would only wait.
struct ChunkSide {
  const void* rows;
  const float* scales;
  const char* next;
  int next_row_bytes;

  LS_INLINE void PrefetchRow(int j) const {
    if (next == nullptr) return;
    const char* ahead = next + static_cast<int64_t>(j) * next_row_bytes;
    for (int i = 0; i < next_row_bytes; i += 64) Prefetch(ahead + i);
  }
};

// Sixteen elements of row j, from a column on.
template <DType kKv>
LS_INLINE F32x16 LoadKv(const ChunkSide& side, int j, int column, int head_dim) {
  if constexpr (kKv == DType::kQ8_0) {
    const int8_t* q = static_cast<const int8_t*>(side.rows) + j * KvRowBytes<kKv>(head_dim) + column;
    return Mul(ToF32(LoadI8(q)), Set(side.scales[j * (head_dim / kBlock) + column / kBlock]));
  }
  const int64_t at = static_cast<int64_t>(j) * head_dim + column;
  if constexpr (kKv == DType::kF16) return LoadF16(static_cast<const uint16_t*>(side.rows) + at);
  return Load(static_cast<const float*>(side.rows) + at);
}

}  // namespace lockstep::kernels::LS_ISA
