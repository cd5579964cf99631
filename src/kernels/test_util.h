// Helpers of the kernels' tests: the tables that this machine can run, the fixture that walks them, random tensors.
//
// Shapes: beside each function
// Errors: a failed expectation
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "device/cpu/features.h"
#include "kernels/cpu/kernels.h"
#include "kernels/ref/half.h"

namespace lockstep::kernels {

const CpuKernels& AmxEmulatedKernels();  // cpu/isa_amx_emulated.cc

inline std::vector<const CpuKernels*> Tables() {
  std::vector<const CpuKernels*> tables = {&GenericKernels()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    tables.push_back(&Avx2Kernels());
  }
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl")) {
    tables.push_back(&Avx512Kernels());
    tables.push_back(&AmxEmulatedKernels());
    if (device::cpu::Supports(device::cpu::Features(), device::cpu::CpuIsa::kAmx)) tables.push_back(&AmxKernels());
  }
  return tables;
}

class Kernels : public testing::TestWithParam<const CpuKernels*> {
 protected:
  const CpuKernels& k = *GetParam();
  std::mt19937 rng{7};

  std::vector<float> Floats(size_t n, float span = 2.0f) {
    std::uniform_real_distribution<float> dist(-span, span);
    std::vector<float> x(n);
    for (float& v : x) v = dist(rng);
    return x;
  }
};

inline void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << what << " element " << i << ": " << a[i] << " against " << b[i];
  }
}

inline constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                                      DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                      DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

// Rows of a file tensor: any quants, finite and moderate scales.
inline std::vector<uint8_t> RandomTensor(DType t, int rows, int cols, std::mt19937& rng) {
  const DTypeInfo info = GetDTypeInfo(t);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows) * (cols / info.block_elems) * info.block_bytes);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
  // Scales and floats must be finite and moderate; quants may be any bytes, -128 included.
  std::uniform_real_distribution<float> dist(-0.05f, 0.05f);
  for (size_t i = 0; i < bytes.size(); i += info.block_bytes) {
    float v = dist(rng);
    uint16_t h = ref::F32ToF16(v), m = ref::F32ToF16(dist(rng));
    if (t == DType::kF32) std::memcpy(&bytes[i], &v, 4);
    if (t == DType::kBF16) h = static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
    if (t != DType::kF32) std::memcpy(&bytes[i + (t == DType::kQ6_K ? 208 : 0)], &h, 2);
    if (t == DType::kQ4_1 || t == DType::kQ5_1 || t == DType::kQ4_K || t == DType::kQ5_K) {
      std::memcpy(&bytes[i + 2], &m, 2);
    }
  }
  return bytes;
}

}  // namespace lockstep::kernels
