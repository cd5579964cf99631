#include "kernels/ref/kernels.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ref/elementary.h"
#include "kernels/ref/half.h"

namespace lockstep::kernels::ref {

void CanonicalSum::AddProduct(int index, float a, float b) {
  float& lane = lane_[index % kLanes];
  lane = std::fma(a, b, lane);
}

void CanonicalSum::Add(int index, float a) {
  lane_[index % kLanes] += a;
}

float CanonicalSum::Total() const {
  float lane[kLanes];
  std::memcpy(lane, lane_, sizeof lane);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

QuantisedRow Quantise(const std::vector<float>& x) {
  QuantisedRow row;
  size_t blocks = (x.size() + kBlock - 1) / kBlock;
  for (size_t b = 0; b < blocks; ++b) {
    float value[kBlock] = {};
    float amax = 0;
    bool finite = true;
    for (size_t j = 0; j < kBlock && b * kBlock + j < x.size(); ++j) {
      value[j] = x[b * kBlock + j];
      finite = finite && std::isfinite(value[j]);
      amax = std::fmax(amax, std::fabs(value[j]));
    }
    float scale = finite ? amax / 127.0f : std::numeric_limits<float>::quiet_NaN();
    float inverse = finite ? 127.0f / amax : 0.0f;
    if (finite && amax < 0x1p-100f) scale = inverse = 0.0f;
    int sum = 0, half_sum = 0;
    for (int j = 0; j < kBlock; ++j) {
      int q = finite ? static_cast<int>(std::nearbyint(value[j] * inverse)) : 0;
      row.q.push_back(q);
      sum += q;
      if (j < kBlock / 2) half_sum += q;
    }
    row.scale.push_back(scale);
    row.sum.push_back(sum);
    row.half_sum.push_back(half_sum);
  }
  return row;
}

namespace {

float Half(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return F16ToF32(h);
}

// Block `b` of a file row as the law sees it: 32 integers, and what they are multiplied by.
struct WeightBlock {
  int q[kBlock];
  float scale;  // exact: at most 11 + 6 bits
  float min = 0;
  bool has_min = false;
  int half_scale[2] = {1, 1};  // Q6_K: of the two halves
};

// The 6-bit scale and minimum of block b of a Q4_K or Q5_K superblock: twelve bytes hold eight of each.
void SixBits(const uint8_t* s, int b, int* scale, int* min) {
  if (b < 4) {
    *scale = s[b] & 63;
    *min = s[b + 4] & 63;
  } else {
    *scale = (s[b + 4] & 15) | (s[b - 4] >> 6) << 4;
    *min = (s[b + 4] >> 4) | (s[b] >> 6) << 4;
  }
}

WeightBlock ReadBlock(DType dtype, const uint8_t* file_row, int b) {
  const DTypeInfo info = GetDTypeInfo(dtype);
  const int blocks_in_file_block = static_cast<int>(info.block_elems) / kBlock;
  const uint8_t* p = file_row + static_cast<size_t>(b / blocks_in_file_block) * info.block_bytes;
  b %= blocks_in_file_block;
  auto nibble = [](const uint8_t* quants, int j) { return j < 16 ? quants[j] & 15 : quants[j - 16] >> 4; };
  auto bit = [](const uint8_t* bits, int j) { return (bits[j / 8] >> (j % 8)) & 1; };
  WeightBlock w;
  for (int j = 0; j < kBlock; ++j) {
    int& q = w.q[j];
    switch (dtype) {
      case DType::kQ4_0:
        q = nibble(p + 2, j) - 8;
        break;
      case DType::kQ4_1:
        q = nibble(p + 4, j);
        break;
      case DType::kQ5_0:
        q = nibble(p + 6, j) + 16 * bit(p + 2, j) - 16;
        break;
      case DType::kQ5_1:
        q = nibble(p + 8, j) + 16 * bit(p + 4, j);
        break;
      case DType::kQ8_0:
        q = static_cast<int8_t>(p[2 + j]);
        break;
      case DType::kQ4_K:  // 32 bytes hold two blocks, one in the low nibbles
        q = (p[16 + b / 2 * 32 + j] >> (b % 2 * 4)) & 15;
        break;
      case DType::kQ5_K:  // byte j of the high bits holds element j of all eight blocks
        q = ((p[48 + b / 2 * 32 + j] >> (b % 2 * 4)) & 15) + 16 * ((p[16 + j] >> b) & 1);
        break;
      case DType::kQ6_K: {  // 128 elements share 64 bytes of nibbles and 32 of bit pairs
        const int part = b / 4, i = b % 4;
        const int low = (p[part * 64 + i % 2 * 32 + j] >> (i / 2 * 4)) & 15;
        const int high = (p[128 + part * 32 + j] >> (i * 2)) & 3;
        q = low + 16 * high - 32;
        break;
      }
      default:
        q = 0;
    }
  }
  w.scale = Half(dtype == DType::kQ6_K ? p + 208 : p);
  if (dtype == DType::kQ4_1 || dtype == DType::kQ5_1) {
    w.has_min = true;
    w.min = Half(p + 2);
  }
  if (dtype == DType::kQ4_K || dtype == DType::kQ5_K) {
    int scale, min;
    SixBits(p + 4, b, &scale, &min);
    w.has_min = true;
    w.scale *= static_cast<float>(scale);
    w.min = -(Half(p + 2) * static_cast<float>(min));
  }
  if (dtype == DType::kQ6_K) {
    for (int half = 0; half < 2; ++half) w.half_scale[half] = static_cast<int8_t>(p[192 + 2 * b + half]);
  }
  return w;
}

float DotQuantBlock(const WeightBlock& w, const int* xq, float x_scale, int x_sum, float acc) {
  int isum = 0;
  for (int j = 0; j < kBlock; ++j) isum += w.half_scale[j / 16] * w.q[j] * xq[j];
  acc = std::fma(static_cast<float>(isum), w.scale * x_scale, acc);
  if (w.has_min) acc = std::fma(w.min, x_scale * static_cast<float>(x_sum), acc);
  return acc;
}

}  // namespace

float DotLeaf(DType dtype, const uint8_t* file_row, int k_begin, int k_end, const std::vector<float>& x,
              const QuantisedRow& xq) {
  float acc = 0;
  if (IsQuantised(dtype)) {
    for (int b = k_begin / kBlock; b < k_end / kBlock; ++b) {
      acc = DotQuantBlock(ReadBlock(dtype, file_row, b), &xq.q[static_cast<size_t>(b) * kBlock], xq.scale[b], xq.sum[b],
                          acc);
    }
    return acc;
  }
  for (int k = k_begin; k < k_end; ++k) {
    float w = 0;
    uint16_t h;
    if (dtype == DType::kF32) {
      std::memcpy(&w, file_row + static_cast<size_t>(k) * 4, 4);
    } else {
      std::memcpy(&h, file_row + static_cast<size_t>(k) * 2, 2);
      w = dtype == DType::kF16 ? F16ToF32(h) : BF16ToF32(h);
    }
    acc = std::fma(w, x[k], acc);
  }
  return acc;
}

std::vector<float> RmsNorm(const std::vector<float>& x, const std::vector<float>& weight, float eps) {
  CanonicalSum squares;
  for (size_t i = 0; i < x.size(); ++i) squares.AddProduct(static_cast<int>(i), x[i], x[i]);
  float mean = squares.Total() / static_cast<float>(x.size());
  float inverse = 1.0f / std::sqrt(mean + eps);
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = (x[i] * inverse) * weight[i];
  return y;
}

float AddBias(float x, float bias) {
  return x + bias;
}

float SiluMul(float gate, float up) {
  return gate / (1.0f + Exp(0.0f - gate)) * up;
}

void Rope(float* head, int head_dim, const float* cos, const float* sin) {
  int half = head_dim / 2;
  for (int i = 0; i < half; ++i) {
    float a = head[i], b = head[i + half];
    float bs = b * sin[i], bc = b * cos[i];
    head[i] = std::fma(a, cos[i], 0.0f - bs);
    head[i + half] = std::fma(a, sin[i], bc);
  }
}

std::vector<uint8_t> StoreKv(DType dtype, const std::vector<float>& x) {
  std::vector<uint8_t> bytes, scales;
  auto append = [](std::vector<uint8_t>& to, const auto& value) {
    const auto* p = reinterpret_cast<const uint8_t*>(&value);
    to.insert(to.end(), p, p + sizeof value);
  };
  if (dtype != DType::kQ8_0) {
    for (float v : x) {
      if (dtype == DType::kF32) append(bytes, v);
      if (dtype == DType::kF16) append(bytes, F32ToF16(v));
    }
    return bytes;
  }
  for (size_t b = 0; b < x.size(); b += kBlock) {
    float amax = 0;
    bool finite = true;
    for (size_t j = b; j < b + kBlock; ++j) {
      finite = finite && std::isfinite(x[j]);
      amax = std::fmax(amax, std::fabs(x[j]));
    }
    uint16_t scale = F32ToF16(amax / 127.0f);
    finite = finite && std::isfinite(F16ToF32(scale));
    if (!finite) scale = 0x7e00;  // NaN
    const bool zero = !finite || scale == 0;
    for (size_t j = b; j < b + kBlock; ++j) {
      const float q = zero ? 0.0f : std::nearbyint(x[j] * (1.0f / F16ToF32(scale)));
      append(bytes, static_cast<int8_t>(std::fmin(std::fmax(q, -127.0f), 127.0f)));
    }
    append(scales, scale);
  }
  bytes.insert(bytes.end(), scales.begin(), scales.end());
  return bytes;
}

std::vector<float> LoadKv(DType dtype, const std::vector<uint8_t>& row) {
  const DTypeInfo info = GetDTypeInfo(dtype);
  std::vector<float> x(row.size() / info.block_bytes * info.block_elems);
  for (size_t i = 0; i < x.size(); ++i) {
    if (dtype == DType::kF32) std::memcpy(&x[i], &row[i * 4], 4);
    if (dtype == DType::kF16) x[i] = Half(&row[i * 2]);
    if (dtype == DType::kQ8_0) {
      x[i] = static_cast<float>(static_cast<int8_t>(row[i])) * Half(&row[x.size() + i / kBlock * 2]);
    }
  }
  return x;
}

std::vector<float> Attention(const std::vector<float>& q, const std::vector<std::vector<float>>& keys,
                             const std::vector<std::vector<float>>& values, float scale) {
  size_t dh = q.size();
  float running_max = 0, running_sum = 0;
  std::vector<float> out(dh, 0.0f);
  for (size_t start = 0; start < keys.size(); start += kKvChunk) {
    size_t n = std::min<size_t>(kKvChunk, keys.size() - start);
    std::vector<float> weight(n);
    float max = -std::numeric_limits<float>::infinity();
    for (size_t j = 0; j < n; ++j) {
      CanonicalSum dot;
      for (size_t i = 0; i < dh; ++i) dot.AddProduct(static_cast<int>(i), q[i], keys[start + j][i]);
      weight[j] = dot.Total() * scale;
      max = std::fmax(max, weight[j]);
    }
    CanonicalSum sum;
    for (size_t j = 0; j < n; ++j) {
      weight[j] = Exp(weight[j] - max);
      sum.Add(static_cast<int>(j), weight[j]);
    }
    float keep = 0, add = 0, merged_max = max;
    if (start > 0) {
      merged_max = std::fmax(running_max, max);
      keep = Exp(running_max - merged_max);
      add = Exp(max - merged_max);
    }
    running_sum = start == 0 ? sum.Total() : std::fma(running_sum, keep, sum.Total() * add);
    running_max = merged_max;
    for (size_t i = 0; i < dh; ++i) {
      float acc = 0;
      for (size_t j = 0; j < n; ++j) acc = std::fma(weight[j], values[start + j][i], acc);
      out[i] = start == 0 ? acc : std::fma(out[i], keep, acc * add);
    }
  }
  for (float& o : out) o = o / running_sum;
  return out;
}

}  // namespace lockstep::kernels::ref
