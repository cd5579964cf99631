// Attention of a few rows of one sequence: keys in position order along each row's own path, in chunks at absolute
// multiples of 64. A chunk that several rows read is widened to f32 once; one that a single row reads is widened in
// registers.
//
// Shapes:  AttentionArgs in kernels.h
// Capture: yes
// Order:   q.k is the canonical 16-lane sum; a chunk's weights are summed by the same rule over the key's index in the
//          chunk; values are a chain over the chunk's keys; chunks merge in order. Siblings are not read. Which rows and
//          heads share a call does not enter a result.
// Source:  the chunked softmax of Milakov and Gimelshein (2018), with fixed chunks; ours
#pragma once

namespace lockstep::kernels::LS_ISA {

struct HeadState {
  float max, sum;
};

template <int H>
struct HeadVectors {
  F32x16 of[H];
};

// q.k of H heads with key j of sixteen, not yet summed over lanes. kVectors = Dh / 16, or 0: any.
template <DType kKv, int kVectors, int H>
struct ScoreTile {
  F32x16 q[H][kVectors > 0 ? kVectors : 1];
  const float* q_rows;
  const ChunkSide& keys;
  int first;
  int head_dim;

  LS_INLINE ScoreTile(const float* q_of_heads, const ChunkSide& k, int dh)
      : q_rows(q_of_heads), keys(k), first(0), head_dim(dh) {
    if constexpr (kVectors > 0) {
      LS_UNROLL for (int h = 0; h < H; ++h) {
        LS_UNROLL for (int i = 0; i < kVectors; ++i) q[h][i] = Load(q_rows + (h * kVectors + i) * 16);
      }
    }
  }

  LS_INLINE HeadVectors<H> Products(int j) const {
    HeadVectors<H> acc;
    LS_UNROLL for (int h = 0; h < H; ++h) acc.of[h] = Set(0.0f);
    if constexpr (kVectors > 0) {
      LS_UNROLL for (int i = 0; i < kVectors; ++i) {
        F32x16 key = LoadKv<kKv>(keys, first + j, i * 16, kVectors * 16);
        LS_UNROLL for (int h = 0; h < H; ++h) acc.of[h] = Fma(q[h][i], key, acc.of[h]);
      }
    } else {
      for (int i = 0; i < head_dim; i += 16) {
        F32x16 key = LoadKv<kKv>(keys, first + j, i, head_dim);
        LS_UNROLL for (int h = 0; h < H; ++h) acc.of[h] = Fma(Load(q_rows + h * head_dim + i), key, acc.of[h]);
      }
    }
    return acc;
  }

  // The tree sums of keys j, j + kStep, j + 2 kStep, ... of the sixteen: depth first, so that few vectors wait.
  template <int kStep>
  LS_INLINE HeadVectors<H> Sums(int j) const {
    if constexpr (kStep == 16) {
      keys.PrefetchRow(first + j);
      return Products(j);
    } else {
      HeadVectors<H> a = Sums<kStep * 2>(j), b = Sums<kStep * 2>(j + kStep);
      LS_UNROLL for (int h = 0; h < H; ++h) a.of[h] = Fold<kStep>(a.of[h], b.of[h]);
      return a;
    }
  }
};

// Scores of one chunk: out[h][j] = scale * (q[h] . k[j]), for j < n; -inf behind, up to the next multiple of 16. The
// keys behind n, up to there, may be anything.
template <DType kKv, int kVectors, int H>
inline void ChunkScores(const float* q, const ChunkSide& keys, int n, int head_dim, float scale, float* out) {
  ScoreTile<kKv, kVectors, H> tile(q, keys, head_dim);
  for (int j = 0; j < n; j += 16) {
    tile.first = j;
    HeadVectors<H> sums = tile.template Sums<1>(0);
    LS_UNROLL for (int h = 0; h < H; ++h) Store(out + h * kKvChunk + j, Mul(sums.of[h], Set(scale)));
  }
  for (int h = 0; h < H; ++h) {
    for (int j = n; j % 16 != 0; ++j) out[h * kKvChunk + j] = -__builtin_inff();
  }
}

// Turns scores into weights exp(s - max) in place; returns max and the canonical sum of each head.
template <int H>
inline void ChunkWeights(float* scores, int n, HeadState (&chunk)[H]) {
  F32x16 top[H], sum[H];
  LS_UNROLL for (int h = 0; h < H; ++h) top[h] = Load(scores + h * kKvChunk);
  for (int j = 16; j < n; j += 16) {
    LS_UNROLL for (int h = 0; h < H; ++h) top[h] = Max(Load(scores + h * kKvChunk + j), top[h]);
  }
  LS_UNROLL for (int h = 0; h < H; ++h) {
    chunk[h].max = ReduceMax(top[h]);
    top[h] = Set(chunk[h].max);
    sum[h] = Set(0.0f);
  }
  for (int j = 0; j < n; j += 16) {
    LS_UNROLL for (int h = 0; h < H; ++h) {
      F32x16 w = Exp(Sub(Load(scores + h * kKvChunk + j), top[h]));
      Store(scores + h * kKvChunk + j, w);
      sum[h] = Add(sum[h], w);
    }
  }
  LS_UNROLL for (int h = 0; h < H; ++h) chunk[h].sum = ReduceTree(sum[h]);
}

// Merges a chunk's max and sum into the running ones; keep and add are the factors of the outputs.
template <int H>
inline void MergeStates(const HeadState (&chunk)[H], HeadState* running, float* keep, float* add) {
  static_assert(H <= 8);
  float factor[16] = {};
  for (int h = 0; h < H; ++h) {
    float m = running[h].max > chunk[h].max ? running[h].max : chunk[h].max;
    factor[h] = running[h].max - m;
    factor[8 + h] = chunk[h].max - m;
    running[h].max = m;
  }
  Store(factor, Exp(Load(factor)));
  for (int h = 0; h < H; ++h) {
    keep[h] = factor[h];
    add[h] = factor[8 + h];
    running[h].sum = __builtin_fmaf(running[h].sum, keep[h], chunk[h].sum * add[h]);
  }
}

// kSlice vectors of the outputs of H heads, from a column on. keep is null for the first chunk.
template <DType kKv, int H, int kSlice>
inline void ChunkValues(const float* weights, const ChunkSide& values, int column, int n, int head_dim,
                        const float* keep, const float* add, float* out) {
  F32x16 acc[H * kSlice];
  LS_UNROLL for (int i = 0; i < H * kSlice; ++i) acc[i] = Set(0.0f);
  for (int j = 0; j < n; ++j) {
    if (column == 0) values.PrefetchRow(j);
    F32x16 value[kSlice];
    LS_UNROLL for (int i = 0; i < kSlice; ++i) value[i] = LoadKv<kKv>(values, j, column + i * 16, head_dim);
    LS_UNROLL for (int h = 0; h < H; ++h) {
      F32x16 w = Set(weights[h * kKvChunk + j]);
      LS_UNROLL for (int i = 0; i < kSlice; ++i) acc[h * kSlice + i] = Fma(w, value[i], acc[h * kSlice + i]);
    }
  }
  LS_UNROLL for (int h = 0; h < H; ++h) {
    LS_UNROLL for (int i = 0; i < kSlice; ++i) {
      float* o = out + h * head_dim + column + i * 16;
      F32x16 sum = acc[h * kSlice + i];
      if (keep != nullptr) sum = Fma(Load(o), Set(keep[h]), Mul(sum, Set(add[h])));
      Store(o, sum);
    }
  }
}

struct ChunkSides {
  ChunkSide keys, values;
};

// One chunk of n keys for H heads of one row.
template <DType kKv, int kVectors, int H>
inline void AttendChunk(const AttentionArgs& a, const ChunkSides& kv, const float* q, float* out, int n, bool first,
                        HeadState* running) {
  alignas(64) float weights[H * kKvChunk];
  const int dh = a.head_dim;
  constexpr int kMost = kKv == DType::kQ8_0 && kScoreHeads > 1 ? 3 : kScoreHeads, kTogether = H < kMost ? H : kMost;
  int h = 0;
  for (; h + kTogether <= H; h += kTogether) {
    ChunkScores<kKv, kVectors, kTogether>(q + h * dh, kv.keys, n, dh, a.scale, weights + h * kKvChunk);
  }
  if constexpr (H % kTogether != 0) {
    ChunkScores<kKv, kVectors, H % kTogether>(q + h * dh, kv.keys, n, dh, a.scale, weights + h * kKvChunk);
  }
  HeadState chunk[H];
  ChunkWeights<H>(weights, n, chunk);
  float keep[H] = {}, add[H] = {};
  if (first) {
    for (int i = 0; i < H; ++i) running[i] = chunk[i];
  } else {
    MergeStates<H>(chunk, running, keep, add);
  }
  constexpr int kSlice = kValueVectors / H > 4 ? 4 : kValueVectors / H > 0 ? kValueVectors / H : 1;
  int i = 0;
  for (; i + kSlice * 16 <= dh; i += kSlice * 16) {
    ChunkValues<kKv, H, kSlice>(weights, kv.values, i, n, dh, first ? nullptr : keep, add, out);
  }
  for (; i < dh; i += 16) ChunkValues<kKv, H, 1>(weights, kv.values, i, n, dh, first ? nullptr : keep, add, out);
}

template <DType kKv, int kVectors>
inline void AttendRowChunk(const AttentionArgs& a, const ChunkSides& kv, const AttentionRow& row, int n, bool first,
                           HeadState* running) {
  for (int h = 0; h < a.num_heads;) {
    const float* q = row.q + h * a.head_dim;
    float* out = row.out + h * a.head_dim;
    switch (a.num_heads - h) {
      case 1:
        AttendChunk<kKv, kVectors, 1>(a, kv, q, out, n, first, running + h);
        return;
      case 2:
        AttendChunk<kKv, kVectors, 2>(a, kv, q, out, n, first, running + h);
        return;
      case 4:
      case 8:
        AttendChunk<kKv, kVectors, 4>(a, kv, q, out, n, first, running + h);
        h += 4;
        break;
      default:
        AttendChunk<kKv, kVectors, 3>(a, kv, q, out, n, first, running + h);
        h += 3;
        break;
    }
  }
}

// Up to this many readers of a page, widening in registers costs less than widening to memory and back.
template <DType kKv>
inline constexpr int kDirectRows = kKv == DType::kQ8_0 ? 1 : 4;

inline int Least(int a, int b) {
  return a < b ? a : b;
}

template <DType kKv, int kVectors>
inline void AttendRows(const AttentionArgs& a) {
  const int dh = a.head_dim;
  float *k = a.scratch, *v = a.scratch + kKvChunk * dh;
  HeadState running[kAttentionRows][kAttentionHeads];
  auto attend = [&]<DType kType>(const ChunkSides& kv, int r, int chunk, int n) {
    const AttentionRow& row = a.rows[r];
    if (row.partials == nullptr) return AttendRowChunk<kType, kVectors>(a, kv, row, n, chunk == 0, running[r]);
    AttentionRow apart = row;
    apart.out = row.partials + chunk * a.partial_stride;
    AttendRowChunk<kType, kVectors>(a, kv, apart, n, true, running[r]);
    for (int h = 0; h < a.num_heads; ++h) {
      float* max_sum = apart.out + a.num_heads * dh + 2 * h;
      max_sum[0] = running[r][h].max;
      max_sum[1] = running[r][h].sum;
    }
  };
  auto wanted = [&](const AttentionRow& row, int chunk) {
    return row.partials == nullptr || (chunk >= a.chunk_begin && chunk < a.chunk_end);
  };
  for (int chunk = a.chunk_begin;; ++chunk) {
    // Keys that a row reads of this page, and the most that any row does.
    auto keys_of = [&](const AttentionRow& row) {
      const bool reads = chunk < row.num_linear_chunks && wanted(row, chunk);
      return reads ? Least(row.num_keys - chunk * kKvChunk, kKvChunk) : 0;
    };
    int most = 0, end = 0, readers = 0;
    for (int r = 0; r < a.num_rows; ++r) {
      readers += keys_of(a.rows[r]) > 0 ? 1 : 0;
      most = keys_of(a.rows[r]) > most ? keys_of(a.rows[r]) : most;
      end = a.rows[r].num_linear_chunks > end ? a.rows[r].num_linear_chunks : end;
    }
    if (most <= 0) break;
    const char *page_k = static_cast<const char*>(a.page_k[chunk]), *page_v = static_cast<const char*>(a.page_v[chunk]);
    const bool more = chunk + 1 < end;
    const auto* next_k = more ? static_cast<const char*>(a.page_k[chunk + 1]) : nullptr;
    const auto* next_v = more ? static_cast<const char*>(a.page_v[chunk + 1]) : nullptr;
    const int row_bytes = static_cast<int>(KvRowBytes<kKv>(dh));
    ChunkSides kv = {{page_k, nullptr, next_k, row_bytes}, {page_v, nullptr, next_v, row_bytes}};
    const bool widen = kKv != DType::kF32 && readers > kDirectRows<kKv>;
    if (widen) {
      Widen<kKv>([&](int j) { return page_k + j * row_bytes; }, most, dh, k);
      Widen<kKv>([&](int j) { return page_v + j * row_bytes; }, most, dh, v);
      kv.keys.rows = k;
      kv.values.rows = v;
    } else if constexpr (kKv == DType::kQ8_0) {
      WidenScales<kVectors>(page_k, most, dh, k);
      WidenScales<kVectors>(page_v, most, dh, v);
      kv.keys.scales = k;
      kv.values.scales = v;
    }
    for (int r = 0; r < a.num_rows; ++r) {
      const int n = keys_of(a.rows[r]);
      if (n <= 0) continue;
      if (widen) {
        attend.template operator()<DType::kF32>(kv, r, chunk, n);
      } else {
        attend.template operator()<kKv>(kv, r, chunk, n);
      }
      kv.keys.next = kv.values.next = nullptr;  // the first row has asked
    }
  }
  for (int r = 0; r < a.num_rows; ++r) {
    const AttentionRow& row = a.rows[r];
    for (int chunk = row.num_linear_chunks; chunk * kKvChunk < row.num_keys; ++chunk) {
      if (!wanted(row, chunk)) continue;
      const int n = Least(row.num_keys - chunk * kKvChunk, kKvChunk), tail = (chunk - row.num_linear_chunks) * kKvChunk;
      Widen<kKv>([&](int j) { return row.tail_k[tail + j]; }, n, dh, k);
      Widen<kKv>([&](int j) { return row.tail_v[tail + j]; }, n, dh, v);
      attend.template operator()<DType::kF32>({{k, nullptr, nullptr, 0}, {v, nullptr, nullptr, 0}}, r, chunk, n);
    }
    if (row.partials != nullptr) continue;
    for (int h = 0; h < a.num_heads; ++h) {
      const F32x16 sum = Set(running[r][h].sum);
      for (int i = h * dh; i < (h + 1) * dh; i += 16) Store(row.out + i, Div(Load(row.out + i), sum));
    }
  }
}

// The same operations as a row's own walk over its chunks.
void MergeAttention(const MergeAttentionArgs& a) {
  HeadState running[1] = {{a.max_sum[0], a.max_sum[1]}};
  for (int i = 0; i < a.head_dim; i += 16) Store(a.out + i, Load(a.values + i));
  for (int c = 1; c < a.num_chunks; ++c) {
    const float* max_sum = a.max_sum + c * a.stride;
    const float* values = a.values + c * a.stride;
    const HeadState chunk[1] = {{max_sum[0], max_sum[1]}};
    float keep, add;
    MergeStates<1>(chunk, running, &keep, &add);
    for (int i = 0; i < a.head_dim; i += 16) {
      Store(a.out + i, Fma(Load(a.out + i), Set(keep), Mul(Load(values + i), Set(add))));
    }
  }
  const F32x16 sum = Set(running[0].sum);
  for (int i = 0; i < a.head_dim; i += 16) Store(a.out + i, Div(Load(a.out + i), sum));
}

template <DType kKv>
inline void AttendAll(const AttentionArgs& a) {
  switch (a.head_dim) {
    case 64:
      return AttendRows<kKv, 4>(a);
    case 128:
      return AttendRows<kKv, 8>(a);
    default:
      return AttendRows<kKv, 0>(a);
  }
}

void Attention(const AttentionArgs& a) {
  if (a.kv_dtype == DType::kF16) {
    AttendAll<DType::kF16>(a);
  } else if (a.kv_dtype == DType::kQ8_0) {
    AttendAll<DType::kQ8_0>(a);
  } else {
    AttendAll<DType::kF32>(a);
  }
}

}  // namespace lockstep::kernels::LS_ISA
