// The file's blocks: read as numbers and repacked.
#include "kernels/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "kernels/ref/kernels.h"
#include "kernels/test_util.h"

namespace lockstep::kernels {
namespace {

TEST(Pack, DequantRowReadsEveryType) {
  std::mt19937 rng(3);
  for (DType t : kAllTypes) {
    const int cols = 512;
    std::vector<uint8_t> row = RandomTensor(t, 1, cols, rng);
    std::vector<float> got(cols);
    DequantRow(t, row.data(), cols, got.data());
    for (int i = 0; i < cols; ++i) {
      // A dot product with a unit vector of large scale reads the element back to int8 precision.
      std::vector<float> unit(cols, 0.0f);
      unit[i] = 127.0f;
      float dot = ref::DotLeaf(t, row.data(), 0, cols, unit, ref::Quantise(unit));
      EXPECT_NEAR(dot / 127.0f, got[i], 1e-5f * std::max(1.0f, std::fabs(got[i]))) << DTypeName(t) << " " << i;
    }
  }
}

// Rows as a file has them and as the gguf package reads them (tools/quant_golden.py).
struct Golden {
  static constexpr int kRows = 2, kCols = 1024;

  explicit Golden(DType t) {
    const DTypeInfo info = GetDTypeInfo(t);
    const std::string stem = std::string(LS_SOURCE_DIR "/tests/golden/quants/") + info.name;
    row_bytes = kCols / info.block_elems * info.block_bytes;
    raw.resize(kRows * row_bytes);
    values.resize(size_t{kRows} * kCols);
    std::ifstream(stem + ".bin", std::ios::binary)
        .read(reinterpret_cast<char*>(raw.data()), static_cast<std::streamsize>(raw.size()));
    std::ifstream f32(stem + ".f32", std::ios::binary);
    f32.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
    EXPECT_EQ(f32.gcount(), static_cast<std::streamsize>(values.size() * sizeof(float))) << stem;
  }
  float value(int row, int col) const { return values[static_cast<size_t>(row) * kCols + col]; }

  size_t row_bytes;
  std::vector<uint8_t> raw;
  std::vector<float> values;
};

TEST(QuantsGolden, DequantRowGivesTheBitsOfTheGgufPackage) {
  for (DType t : kAllTypes) {
    if (!IsQuantised(t)) continue;
    const Golden golden(t);
    std::vector<float> got(golden.values.size());
    for (int row = 0; row < Golden::kRows; ++row) {
      DequantRow(t, &golden.raw[row * golden.row_bytes], Golden::kCols, &got[size_t(row) * Golden::kCols]);
    }
    ExpectSameBits(got, golden.values, DTypeName(t));
  }
}

// Reads each repacked element back as a product with a unit vector: 127 is its own int8 with a scale of 1.
TEST(QuantsGolden, PackedElementsAreTheirs) {
  for (DType t : kAllTypes) {
    if (!IsQuantised(t)) continue;
    const Golden golden(t);
    for (int k_begin : {0, 96}) {  // 96 lies inside a superblock
      const int k = Golden::kCols - k_begin;
      std::vector<uint8_t> storage(PackedBytes(t, Golden::kRows, k, k_begin) + 64);
      auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(storage.data()) + 63) & ~63ull);
      const PackedMatrix packed =
          Pack({t, golden.raw.data(), Golden::kCols, Golden::kRows, nullptr, 0, k_begin, k}, aligned, 0, 1);
      std::vector<float> x(k), scale(k / 32), scaled_sum(scale), out(16);
      std::vector<int8_t> q(k);
      std::vector<int32_t> sum(k / 32), half_sum(sum);
      const QuantRows rows = {q.data(), scale.data(), sum.data(), scaled_sum.data(), half_sum.data(), k, k / 32};
      const LeafPlan plan = {1, {k}, {0}, {0}};
      for (int i = 0; i < k; ++i) {
        x.assign(k, 0.0f);
        x[i] = 127.0f;
        GenericKernels().quantise_row(x.data(), k, rows, 0);
        GenericKernels().matmul({&packed, 0, 1, &rows, nullptr, 0, 1, &plan, {out.data(), nullptr, nullptr}, 16});
        for (int row = 0; row < Golden::kRows; ++row) {
          const int col = k_begin + i, block = col / 32 * 32;
          float largest = 0;  // of the block: with a minimum, a sum of two rounded terms can be near zero
          for (int j = block; j < block + 32; ++j) largest = std::max(largest, std::fabs(golden.value(row, j)));
          const float tolerance = 4e-6f * largest;
          ASSERT_NEAR(out[row] / 127.0f, golden.value(row, col), tolerance) << DTypeName(t) << " " << row << " " << col;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
