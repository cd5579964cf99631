// What the tests of kernels share: the tables that this machine can run, and comparing bits.
//
// Shapes:   rows of floats
// Errors:   gtest failures
// Threads:  one
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <string>
#include <vector>

#include "device/cpu/features.h"
#include "kernels/cpu/kernels.h"

namespace lockstep::kernels {

const CpuKernels& AmxEmulatedKernels();  // cpu/isa_amx_emulated.cc

namespace testing {

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

class KernelsTest : public ::testing::TestWithParam<const CpuKernels*> {
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

}  // namespace testing
}  // namespace lockstep::kernels
