// The definition of every kernel: simple loops in the order of docs/numerics.md, straight from the file's own bytes.
// The fast kernels must equal these bit for bit; read this first.
//
// Shapes:  one row at a time; beside each function
// Capture: pure functions
// Order:   this file is the order
// Source:  ours
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/law.h"

namespace lockstep::kernels::ref {

// The canonical sum of values that arrive by index: partial sum i mod 16, then lane i + lane i+8, +4, +2, +1.
class CanonicalSum {
 public:
  void AddProduct(int index, float a, float b);  // one fused multiply-add
  void Add(int index, float a);
  float Total() const;

 private:
  float lane_[kLanes] = {};
};

struct QuantisedRow {
  std::vector<int> q;         // [ceil(k / 32) * 32]
  std::vector<float> scale;   // [blocks]
  std::vector<int> sum;       // [blocks]
  std::vector<int> half_sum;  // [blocks]  of the first 16
};

QuantisedRow Quantise(const std::vector<float>& x);

// One leaf of a dot product: elements [k_begin, k_end) of a file row against a row of activations; a chain from zero.
float DotLeaf(DType dtype, const uint8_t* file_row, int k_begin, int k_end, const std::vector<float>& x,
              const QuantisedRow& xq);

// (x * 1/sqrt(mean square + eps)) * weight.
std::vector<float> RmsNorm(const std::vector<float>& x, const std::vector<float>& weight, float eps);

float AddBias(float x, float bias);

float SiluMul(float gate, float up);

// Rotates the halves of one head in place.
void Rope(float* head, int head_dim, const float* cos, const float* sin);

// A key or value row as the cache keeps it, in kF32, kF16 or kQ8_0: Dh int8, then an f16 scale for each block of 32.
std::vector<uint8_t> StoreKv(DType dtype, const std::vector<float>& x);
// What is read of it, in f32.
std::vector<float> LoadKv(DType dtype, const std::vector<uint8_t>& row);

// One query head over keys and values in path order, already in the cache's precision.
std::vector<float> Attention(const std::vector<float>& q, const std::vector<std::vector<float>>& keys,
                             const std::vector<std::vector<float>>& values, float scale);

}  // namespace lockstep::kernels::ref
