// Attention of one row: keys in position order along the row's own path, in chunks at absolute multiples of 64.
//
// Shapes:  AttentionArgs in kernels.h
// Capture: yes
// Order:   q.k is the canonical 16-lane sum; a chunk's weights are summed by the same rule over the key's index in the
//          chunk; values are a chain over the chunk's keys; chunks merge in order. Siblings are not read.
// Source:  the chunked softmax of Milakov and Gimelshein (2018), with fixed chunks; ours
#pragma once

namespace lockstep::kernels::LS_ISA {

template <DType kKv>
inline F32x16 LoadKv(const void* p, int i) {
  if constexpr (kKv == DType::kF16) return LoadF16(static_cast<const uint16_t*>(p) + i);
  return Load(static_cast<const float*>(p) + i);
}

template <DType kKv>
inline const void* KvRow(const void* page, int key, int head_dim) {
  constexpr int kBytes = kKv == DType::kF16 ? 2 : 4;
  return static_cast<const char*>(page) + static_cast<int64_t>(key) * head_dim * kBytes;
}

// Scores of one chunk: out[h][j] = scale * (q[h] . k[j]), for j < n; -inf behind, up to the next multiple of 16.
template <DType kKv, int H, class KeyAt>
inline void ChunkScores(const AttentionArgs& a, const float* q, KeyAt key_at, int n, float* out) {
  const F32x16 scale = Set(a.scale);
  for (int j0 = 0; j0 < n; j0 += 16) {
    F32x16 dots[H][16];
    for (int j = 0; j < 16; ++j) {
      const void* key = key_at(j0 + j < n ? j0 + j : n - 1);
      F32x16 acc[H];
      for (int h = 0; h < H; ++h) acc[h] = Set(0.0f);
      for (int i = 0; i < a.head_dim; i += 16) {
        F32x16 k = LoadKv<kKv>(key, i);
        for (int h = 0; h < H; ++h) acc[h] = Fma(Load(q + h * a.head_dim + i), k, acc[h]);
      }
      for (int h = 0; h < H; ++h) dots[h][j] = acc[h];
    }
    for (int h = 0; h < H; ++h) Store(out + h * kKvChunk + j0, Mul(ReduceTree16(dots[h]), scale));
  }
  for (int h = 0; h < H; ++h) {
    for (int j = n; j % 16 != 0; ++j) out[h * kKvChunk + j] = -__builtin_inff();
  }
}

// Turns scores into weights exp(s - max) in place; returns max and the canonical sum.
inline void ChunkWeights(float* scores, int n, float* max_out, float* sum_out) {
  F32x16 top = Load(scores);
  for (int j = 16; j < n; j += 16) top = Max(Load(scores + j), top);
  float lanes[16];
  Store(lanes, top);
  float max = lanes[0];
  for (float lane : lanes) max = lane > max ? lane : max;
  F32x16 sum = Set(0.0f);
  for (int j = 0; j < n; j += 16) {
    F32x16 w = Exp(Sub(Load(scores + j), Set(max)));
    Store(scores + j, w);
    sum = Add(sum, w);
  }
  *max_out = max;
  *sum_out = ReduceTree(sum);
}

inline float ExpOne(float x) {
  float lanes[16];
  Store(lanes, Exp(Set(x)));
  return lanes[0];
}

template <DType kKv, int H>
inline void AttendHeads(const AttentionArgs& a, const float* q, float* out) {
  alignas(64) float weights[H * kKvChunk];
  float running_max[H] = {}, running_sum[H] = {};
  const int dh = a.head_dim;
  for (int start = 0; start < a.num_keys; start += kKvChunk) {
    const int n = a.num_keys - start < kKvChunk ? a.num_keys - start : kKvChunk;
    const int chunk = start / kKvChunk;
    const bool linear = chunk < a.num_linear_chunks;
    const int tail = start - a.num_linear_chunks * kKvChunk;
    float max[H], sum[H];
    if (linear) {
      ChunkScores<kKv, H>(
          a, q, [&](int j) { return KvRow<kKv>(a.page_k[chunk], j, dh); }, n, weights);
    } else {
      ChunkScores<kKv, H>(
          a, q, [&](int j) { return a.tail_k[tail + j]; }, n, weights);
    }
    float keep[H] = {}, add[H] = {};
    for (int h = 0; h < H; ++h) {
      ChunkWeights(weights + h * kKvChunk, n, &max[h], &sum[h]);
      if (start == 0) {
        running_max[h] = max[h];
        running_sum[h] = sum[h];
        continue;
      }
      float m = running_max[h] > max[h] ? running_max[h] : max[h];
      keep[h] = ExpOne(running_max[h] - m);
      add[h] = ExpOne(max[h] - m);
      running_sum[h] = __builtin_fmaf(running_sum[h], keep[h], sum[h] * add[h]);
      running_max[h] = m;
    }
    for (int i = 0; i < dh; i += 32) {  // two vectors of outputs at a time, all heads
      const bool pair = i + 16 < dh;
      F32x16 acc0[H], acc1[H];
      for (int h = 0; h < H; ++h) acc0[h] = acc1[h] = Set(0.0f);
      for (int j = 0; j < n; ++j) {
        const void* value = linear ? KvRow<kKv>(a.page_v[chunk], j, dh) : a.tail_v[tail + j];
        F32x16 v0 = LoadKv<kKv>(value, i);
        F32x16 v1 = pair ? LoadKv<kKv>(value, i + 16) : v0;
        for (int h = 0; h < H; ++h) {
          F32x16 w = Set(weights[h * kKvChunk + j]);
          acc0[h] = Fma(w, v0, acc0[h]);
          acc1[h] = Fma(w, v1, acc1[h]);
        }
      }
      for (int h = 0; h < H; ++h) {
        float* o = out + h * dh + i;
        if (start != 0) {
          acc0[h] = Fma(Load(o), Set(keep[h]), Mul(acc0[h], Set(add[h])));
          if (pair) acc1[h] = Fma(Load(o + 16), Set(keep[h]), Mul(acc1[h], Set(add[h])));
        }
        Store(o, acc0[h]);
        if (pair) Store(o + 16, acc1[h]);
      }
    }
  }
  for (int h = 0; h < H; ++h) {
    for (int i = 0; i < dh; i += 16) {
      Store(out + h * dh + i, Div(Load(out + h * dh + i), Set(running_sum[h])));
    }
  }
}

template <DType kKv>
inline void AttendAll(const AttentionArgs& a) {
  int h = 0;
  for (; h + 4 <= a.num_heads; h += 4) {
    AttendHeads<kKv, 4>(a, a.q + h * a.head_dim, a.out + h * a.head_dim);
  }
  const float* q = a.q + h * a.head_dim;
  float* out = a.out + h * a.head_dim;
  switch (a.num_heads - h) {
    case 3:
      AttendHeads<kKv, 3>(a, q, out);
      break;
    case 2:
      AttendHeads<kKv, 2>(a, q, out);
      break;
    case 1:
      AttendHeads<kKv, 1>(a, q, out);
      break;
    default:
      break;
  }
}

void Attention(const AttentionArgs& a) {
  if (a.kv_dtype == DType::kF16) {
    AttendAll<DType::kF16>(a);
  } else {
    AttendAll<DType::kF32>(a);
  }
}

}  // namespace lockstep::kernels::LS_ISA
