// Blocks against the gguf package's quantiser (tools/quant_golden.py), and values that no block holds.
#include "model/formats/quantise.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

namespace lockstep::model {
namespace {

const std::string kFolder = std::string(LS_SOURCE_DIR) + "/tests/golden/quants/";
constexpr size_t kCols = 1024;
constexpr DType kTypes[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};

std::string ReadFile(const std::string& name) {
  std::ifstream in(kFolder + name, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

std::vector<float> Rows() {
  const std::string raw = ReadFile("encode.f32");
  std::vector<float> rows(raw.size() / sizeof(float));
  std::memcpy(rows.data(), raw.data(), rows.size() * sizeof(float));
  return rows;
}

// The row in another type, which must hold it exactly.
std::string InType(DType type, const float* row) {
  std::string out;
  for (size_t i = 0; i < kCols; ++i) {
    char raw[4];
    std::memcpy(raw, row + i, 4);
    if (type == DType::kBF16) {
      EXPECT_TRUE(raw[0] == 0 && raw[1] == 0) << i;
      out.append(raw + 2, 2);
    } else if (type == DType::kF16) {
      const auto h = static_cast<_Float16>(row[i]);
      EXPECT_EQ(static_cast<float>(h), row[i]) << i;
      std::memcpy(raw, &h, 2);
      out.append(raw, 2);
    } else {
      out.append(raw, 4);
    }
  }
  return out;
}

void ExpectRow(DType from, DType to, size_t row) {
  SCOPED_TRACE(std::string(DTypeName(from)) + " to " + DTypeName(to) + ", row " + std::to_string(row));
  const std::vector<float> rows = Rows();
  ASSERT_EQ(rows.size(), 4 * kCols);
  const size_t bytes = kCols / 32 * GetDTypeInfo(to).block_bytes;
  const std::string expected = ReadFile(std::string("encode.") + DTypeName(to) + ".bin").substr(row * bytes, bytes);
  ASSERT_EQ(expected.size(), bytes);
  for (size_t shift : {0, 1, 3}) {  // at any address
    const std::string source = std::string(shift, 'x') + InType(from, &rows[row * kCols]);
    std::string out(bytes, '\0');
    ASSERT_FALSE(Quantise(from, reinterpret_cast<const uint8_t*>(source.data()) + shift, kCols, to,
                          reinterpret_cast<uint8_t*>(out.data())));
    for (size_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(out[i], expected[i]) << "block " << i / GetDTypeInfo(to).block_bytes << ", byte "
                                     << i % GetDTypeInfo(to).block_bytes;
    }
  }
}

TEST(Quantise, EqualsGgufsQuantiser) {
  for (DType to : kTypes) {
    for (size_t row = 0; row < 4; ++row) ExpectRow(DType::kF32, to, row);
    ExpectRow(DType::kBF16, to, 1);
    ExpectRow(DType::kF16, to, 2);
  }
}

std::optional<BadElement> QuantiseWith(DType to, size_t at, float value) {
  std::vector<float> x(96, 0.5f);
  x[at] = value;
  std::vector<uint8_t> out(3 * GetDTypeInfo(to).block_bytes);
  return Quantise(DType::kF32, reinterpret_cast<const uint8_t*>(x.data()), x.size(), to, out.data());
}

TEST(Quantise, NamesWhatNoBlockHolds) {
  const float inf = std::numeric_limits<float>::infinity();
  for (DType to : kTypes) {
    for (size_t at : {0, 31, 32, 95}) {
      for (float value : {inf, -inf, std::nanf(""), 1e30f, -3e38f}) {
        auto bad = QuantiseWith(to, at, value);
        ASSERT_TRUE(bad) << DTypeName(to) << " " << value;
        EXPECT_EQ(bad->index, at);
        EXPECT_TRUE(bad->value == value || std::isnan(value));
      }
      for (float value : {0.0f, -0.0f, 1e-45f, -1e-39f, 1e-30f, 60000.0f, -60000.0f}) {
        EXPECT_FALSE(QuantiseWith(to, at, value)) << DTypeName(to) << " " << value;
      }
    }
  }
  // The largest scale of an f16 is 65504: 127 of its steps in Q8_0, 8 in Q4_0.
  EXPECT_FALSE(QuantiseWith(DType::kQ8_0, 7, 8.3e6f));
  EXPECT_TRUE(QuantiseWith(DType::kQ8_0, 7, 8.4e6f));
  EXPECT_FALSE(QuantiseWith(DType::kQ4_0, 7, 5.2e5f));
  EXPECT_TRUE(QuantiseWith(DType::kQ4_0, 7, 5.3e5f));
  EXPECT_TRUE(QuantiseWith(DType::kQ4_1, 7, -66000.0f));
}

TEST(Quantise, SubnormalsOfEveryTypeStayFinite) {
  for (DType to : kTypes) {
    std::vector<float> x(32, 1e-45f);
    std::vector<uint8_t> out(GetDTypeInfo(to).block_bytes);
    EXPECT_FALSE(Quantise(DType::kF32, reinterpret_cast<const uint8_t*>(x.data()), 32, to, out.data()));
    EXPECT_EQ(out[0], 0);  // the scale
    EXPECT_EQ(out[1] & 0x7f, 0);
  }
}

TEST(Quantise, FindNotFiniteReadsEachType) {
  const uint16_t f16[] = {0x7bff, 0x03ff, 0xfc00}, bf16[] = {0x7f7f, 0x7c00, 0x7fc0};
  const float f32[] = {3e38f, 0, std::nanf("")};
  auto find = [](DType type, const void* data, uint64_t n) {
    return FindNotFinite(type, static_cast<const uint8_t*>(data), n);
  };
  EXPECT_FALSE(find(DType::kF16, f16, 2) || find(DType::kBF16, bf16, 2) || find(DType::kF32, f32, 2));
  EXPECT_EQ(find(DType::kF16, f16, 3)->index, 2u);
  EXPECT_EQ(find(DType::kF16, f16, 3)->value, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(find(DType::kBF16, bf16, 3)->index, 2u);
  EXPECT_EQ(find(DType::kF32, f32, 3)->index, 2u);
  for (size_t at : {0, 31, 32, 63, 64, 69}) {  // in a block of 32 and behind the last whole one
    std::vector<uint16_t> row(70, 0x3c00);
    row[at] = 0x7f80;
    EXPECT_EQ(find(DType::kBF16, row.data(), 70)->index, at);
    row[at] = 0xfe00;
    EXPECT_EQ(find(DType::kF16, row.data(), 70)->index, at);
    EXPECT_FALSE(find(DType::kF16, row.data(), at));
  }
}

}  // namespace
}  // namespace lockstep::model
