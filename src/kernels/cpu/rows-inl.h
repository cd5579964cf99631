// Kernels over one row at a time: residual + RMSNorm, int8 quantisation, bias, SiLU, rope, cache stores, argmax, exp, log.
//
// Shapes:  beside each field in kernels.h
// Capture: yes
// Order:   sums that cross lanes are the canonical 16-lane sum; everything else is element by element
// Source:  ours
#pragma once

namespace lockstep::kernels::LS_ISA {

// The tree sum of the partials at element i. One and two, the usual numbers, stay in registers.
template <int kPartials>
LS_INLINE F32x16 PartialSum(const NormArgs& a, int i) {
  if constexpr (kPartials == 1) return Load(a.partials[0] + i);
  if constexpr (kPartials == 2) return Add(Load(a.partials[0] + i), Load(a.partials[1] + i));
  F32x16 stack[4];
  int depth = 0;
  for (int p = 0; p < a.num_partials; ++p) {
    stack[depth++] = Load(a.partials[p] + i);
    for (int m = 0; m < a.merges_after[p]; ++m) {
      --depth;
      stack[depth - 1] = Add(stack[depth - 1], stack[depth]);
    }
  }
  return stack[0];
}

// Adds the partials to x and returns the sixteen partial sums of squares. kPartials: 0, 1, 2, or 3 for any number.
template <int kPartials>
LS_INLINE F32x16 AddAndSquare(const NormArgs& a, int d16) {
  F32x16 squares = Set(0.0f);
  for (int i = 0; i < d16; i += 16) {
    F32x16 x = Load(a.x + i);
    if constexpr (kPartials > 0) {
      x = Add(x, PartialSum<kPartials>(a, i));
      Store(a.x + i, x);
    }
    squares = Fma(x, x, squares);
  }
  return squares;
}

bool AddNorm(const NormArgs& a) {
  const int d16 = (a.d + 15) / 16 * 16;
  F32x16 squares;
  switch (a.num_partials) {
    case 0:
      squares = AddAndSquare<0>(a, d16);
      break;
    case 1:
      squares = AddAndSquare<1>(a, d16);
      break;
    case 2:  // one tree only: the second is added to the first
      squares = AddAndSquare<2>(a, d16);
      break;
    default:
      squares = AddAndSquare<3>(a, d16);
      break;
  }
  float sum = ReduceTree(squares);
  float mean = sum / static_cast<float>(a.d);
  float inverse = 1.0f / __builtin_sqrtf(mean + a.eps);
  F32x16 inv = Set(inverse);
  for (int i = 0; i < d16; i += 16) {
    Store(a.out + i, Mul(Mul(Load(a.x + i), inv), Load(a.weight + i)));
  }
  return sum - sum == 0.0f;
}

void QuantiseRow(const float* x, int k, const QuantRows& out, int row) {
  const int num_blocks = (k + kBlock - 1) / kBlock;
  int8_t* q = out.q + row * out.ld_q;
  const I32x16 magnitude = SetI(0x7fffffff);
  for (int b = 0; b < num_blocks; ++b) {
    F32x16 lo = Load(x + b * kBlock), hi = Load(x + b * kBlock + 16);
    // As integers the absolute values order like the numbers, and NaN comes last.
    int32_t bits = ReduceMaxI(MaxI(AndI(Bits(lo), magnitude), AndI(Bits(hi), magnitude)));
    float scale, inverse;
    if (bits >= 0x7f800000) {
      scale = __builtin_nanf("");
      inverse = 0.0f;
      lo = hi = Set(0.0f);
    } else if (bits < 0x0d800000) {  // below 2^-100: its inverse could overflow; the block counts as zero
      scale = 0.0f;
      inverse = 0.0f;
    } else {
      float amax;
      __builtin_memcpy(&amax, &bits, sizeof amax);
      scale = amax / 127.0f;
      inverse = 127.0f / amax;
    }
    I32x16 qlo = RoundToI32(Mul(lo, Set(inverse))), qhi = RoundToI32(Mul(hi, Set(inverse)));
    StoreI8(q + b * kBlock, qlo);
    StoreI8(q + b * kBlock + 16, qhi);
    int32_t half_sum = ReduceAddI(qlo), sum = ReduceAddI(AddI(qlo, qhi));
    out.scale[row * out.ld_block + b] = scale;
    out.sum[row * out.ld_block + b] = sum;
    out.half_sum[row * out.ld_block + b] = half_sum;
    out.scaled_sum[row * out.ld_block + b] = scale * static_cast<float>(sum);
  }
}

void AddBias(float* x, const float* bias, int n) {
  for (int i = 0; i < n; i += 16) Store(x + i, Add(Load(x + i), Load(bias + i)));
}

void SiluMul(const float* gate, const float* up, float* y, int n) {
  for (int i = 0; i < n; i += 16) {
    F32x16 g = Load(gate + i);
    F32x16 e = Exp(Sub(Set(0.0f), g));
    Store(y + i, Mul(Div(g, Add(Set(1.0f), e)), Load(up + i)));
  }
}

void Rope(float* heads, int num_heads, int head_dim, const float* cos, const float* sin) {
  const int half = head_dim / 2;
  for (int h = 0; h < num_heads; ++h) {
    float* a = heads + h * head_dim;
    float* b = a + half;
    int i = 0;
    for (; i + 16 <= half; i += 16) {
      F32x16 va = Load(a + i), vb = Load(b + i), c = Load(cos + i), s = Load(sin + i);
      F32x16 bs = Mul(vb, s);
      Store(a + i, Fma(va, c, Sub(Set(0.0f), bs)));
      Store(b + i, Fma(va, s, Mul(vb, c)));
    }
    for (; i < half; ++i) {
      float va = a[i], vb = b[i];
      float bs = vb * sin[i], bc = vb * cos[i];
      a[i] = __builtin_fmaf(va, cos[i], 0.0f - bs);
      b[i] = __builtin_fmaf(va, sin[i], bc);
    }
  }
}

// The row of kernels.h (q8_0) from f32.
inline void StoreQ8Row(const float* x, void* out, int n) {
  auto* q = static_cast<int8_t*>(out);
  int8_t* scales = q + n;
  const I32x16 magnitude = SetI(0x7fffffff);
  for (int b = 0; b < n / kBlock; ++b) {
    F32x16 lo = Load(x + b * kBlock), hi = Load(x + b * kBlock + 16);
    const int32_t bits = ReduceMaxI(MaxI(AndI(Bits(lo), magnitude), AndI(Bits(hi), magnitude)));
    float amax;
    __builtin_memcpy(&amax, &bits, sizeof amax);
    uint16_t half[16];
    StoreF16(half, Set(amax / 127.0f));
    uint16_t scale = half[0];
    float inverse = 0.0f;
    if (scale >= 0x7c00) {
      scale = 0x7e00;
      lo = hi = Set(0.0f);
    } else if (scale > 0) {
      float lanes[16];
      Store(lanes, SetF16(scale));
      inverse = 1.0f / lanes[0];
    }
    auto quantise = [inverse](F32x16 v) {
      v = Mul(v, Set(inverse));
      v = SelectGreater(v, 127.0f, Set(127.0f), v);
      return RoundToI32(SelectLess(v, -127.0f, Set(-127.0f), v));
    };
    StoreI8(q + b * kBlock, quantise(lo));
    StoreI8(q + b * kBlock + 16, quantise(hi));
    __builtin_memcpy(scales + b * 2, &scale, sizeof scale);
  }
}

void StoreKv(const float* x, DType kv_dtype, void* out, int n) {
  if (kv_dtype == DType::kQ8_0) {
    StoreQ8Row(x, out, n);
    return;
  }
  if (kv_dtype == DType::kF32) {
    __builtin_memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  auto* half = static_cast<uint16_t*>(out);
  for (int i = 0; i < n; i += 16) StoreF16(half + i, Load(x + i));
}

ArgmaxResult Argmax(const float* x, int n) {
  constexpr int kSpan = 1024;  // values a span: the second pass looks into one span only
  const I32x16 magnitude = SetI(0x7fffffff);
  I32x16 largest_bits = SetI(0);
  ArgmaxResult best = {0.0f, -1, true};
  int best_span = 0;
  for (int start = 0; start < n; start += kSpan) {
    int end = start + kSpan < n ? start + kSpan : n;
    int i = start;
    float top = x[start];
    if (end - start >= 16) {
      F32x16 m = Load(x + i);
      for (; i + 16 <= end; i += 16) {
        F32x16 v = Load(x + i);
        largest_bits = MaxI(largest_bits, AndI(Bits(v), magnitude));
        m = Max(v, m);
      }
      float lanes[16];
      Store(lanes, m);
      top = lanes[0];
      for (float lane : lanes) top = lane > top ? lane : top;
    }
    for (; i < end; ++i) {
      int32_t bits;
      __builtin_memcpy(&bits, x + i, sizeof bits);
      largest_bits = MaxI(largest_bits, SetI(bits & 0x7fffffff));
      top = x[i] > top ? x[i] : top;
    }
    if (best.index < 0 || top > best.value) {
      best.value = top;
      best.index = start;
      best_span = start;
    }
  }
  best.finite = ReduceMaxI(largest_bits) < 0x7f800000;
  if (!best.finite || n == 0) return {0.0f, -1, false};
  for (int i = best_span; i < n; ++i) {
    if (x[i] == best.value) {  // the smallest index; -0 equals +0
      best.index = i;
      best.value = x[i];
      break;
    }
  }
  return best;
}

template <F32x16 (*kFunction)(F32x16)>
inline void Map(const float* x, float* y, int n) {
  int i = 0;
  for (; i + 16 <= n; i += 16) Store(y + i, kFunction(Load(x + i)));
  if (i == n) return;
  float lanes[16];
  for (float& lane : lanes) lane = 1.0f;
  for (int j = i; j < n; ++j) lanes[j - i] = x[j];
  Store(lanes, kFunction(Load(lanes)));
  for (int j = i; j < n; ++j) y[j] = lanes[j - i];
}

void ExpRow(const float* x, float* y, int n) {
  Map<Exp>(x, y, n);
}
void LogRow(const float* x, float* y, int n) {
  Map<Log>(x, y, n);
}

}  // namespace lockstep::kernels::LS_ISA
