#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

#include "device/cpu/affinity.h"
#include "device/cpu/features.h"
#include "device/cpu/memory.h"
#include "device/cpu/read_bandwidth.h"

namespace lockstep::device::cpu {
namespace {

TEST(Features, ImplyEachOther) {
  const CpuFeatures& f = Features();
  EXPECT_TRUE(f.avx512f || !(f.avx512bw || f.avx512_vnni));
  EXPECT_TRUE(f.avx2 || !f.avx512f);
  EXPECT_TRUE(Supports(f, BestIsa(f)));
  EXPECT_TRUE(Supports(f, CpuIsa::kGeneric));
}

TEST(Isa, TheSetsNeedAllTheirParts) {
  CpuFeatures f;
  EXPECT_EQ(BestIsa(f), CpuIsa::kGeneric);
  f.avx2 = f.fma = true;
  EXPECT_EQ(BestIsa(f), CpuIsa::kGeneric);  // no f16c
  f.f16c = true;
  EXPECT_EQ(BestIsa(f), CpuIsa::kAvx2);
  f.avx_vnni = true;
  EXPECT_EQ(BestIsa(f), CpuIsa::kAvxVnni);
  f.avx512f = f.avx512bw = f.avx512vl = f.avx512dq = true;
  EXPECT_EQ(BestIsa(f), CpuIsa::kAvxVnni);  // no vnni for 512 bits
  f.avx512_vnni = true;
  EXPECT_EQ(BestIsa(f), CpuIsa::kAvx512);
  f.amx_int8 = true;
  EXPECT_EQ(BestIsa(f), CpuIsa::kAmx);
  f.avx512_vnni = false;
  EXPECT_EQ(BestIsa(f), CpuIsa::kAvxVnni);
}

TEST(Isa, ParsesAndNamesMistakes) {
  CpuFeatures f;
  f.avx2 = f.fma = f.f16c = true;
  EXPECT_EQ(*ParseIsa("", f), CpuIsa::kAvx2);
  EXPECT_EQ(*ParseIsa("generic", f), CpuIsa::kGeneric);
  EXPECT_EQ(*ParseIsa("avx2", f), CpuIsa::kAvx2);
  Status missing = ParseIsa("avx512", f).status();
  EXPECT_EQ(missing.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(missing.message(), "instruction set \"avx512\": this machine lacks it; it has avx2 fma f16c");
  Status unknown = ParseIsa("sse9", f).status();
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.message().find("sse9"), std::string::npos);
  EXPECT_NE(ParseIsa("avx2", {}).status().message().find("generic only"), std::string::npos);
}

TEST(Affinity, PinsAndUnpins) {
  auto before = AllowedCpus();
  ASSERT_TRUE(before.ok());
  ASSERT_FALSE(before->empty());
  ASSERT_TRUE(PinThread(before->back()).ok());
  EXPECT_EQ(*AllowedCpus(), std::vector<int>{before->back()});
  ASSERT_TRUE(PinThread(*before).ok());
  EXPECT_EQ(*AllowedCpus(), *before);
  Status bad = PinThread(60000);
  EXPECT_EQ(bad.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(bad.message().find("60000"), std::string::npos);
  EXPECT_FALSE(PinThread(-1).ok());
  EXPECT_EQ(*AllowedCpus(), *before);
}

TEST(Memory, IsAlignedZeroAndMoves) {
  for (size_t bytes : {size_t{1}, size_t{4096}, kHugePageBytes - 1, kHugePageBytes, 3 * kHugePageBytes + 5}) {
    auto memory = Memory::Allocate(bytes, "a test");
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(memory->bytes(), bytes);
    const size_t align = bytes >= kHugePageBytes ? kHugePageBytes : 4096;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % align, 0u);
    EXPECT_EQ(memory->data()[0], std::byte{0});
    memory->data()[0] = std::byte{7};
    memory->data()[bytes - 1] = std::byte{7};
    Memory moved = std::move(*memory);
    EXPECT_EQ(moved.data()[0], std::byte{7});
    EXPECT_EQ(memory->data(), nullptr);
  }
  EXPECT_EQ(Memory::Allocate(0, "nothing")->data(), nullptr);
}

TEST(ReadBandwidth, IsAPlausibleFigureForEveryNumberOfThreadsAndSize) {
  for (size_t bytes : {size_t{1}, size_t{100000}, size_t{5} << 20}) {
    for (size_t threads : {1, 2, 3}) {
      auto gbps = MeasureReadGbps({bytes, std::vector<int>(threads, -1), 4});
      ASSERT_TRUE(gbps.ok()) << gbps.status().message();
      EXPECT_GT(*gbps, 0.01);  // a slow emulator
      EXPECT_LT(*gbps, 1e5);   // no cache of a few cores gives 100 TB/s: loads were left out
    }
  }
  EXPECT_EQ(MeasureReadGbps({size_t{1} << 56, {-1}, 1}).status().code(), StatusCode::kOutOfMemory);
}

// Pages of this process's anonymous memory, from /proc/self/statm.
int64_t ResidentPages() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident;
}

TEST(ZeroVector, IsZeroAndTakesMemoryWhereItIsUsed) {
  constexpr size_t kElems = size_t{16} << 20;  // 64 MiB
  const int64_t before = ResidentPages();
  ZeroVector<float> x(kElems);
  EXPECT_LT(ResidentPages() - before, 1024);  // 4 MiB; other parts of this process may move
  EXPECT_EQ(x[kElems / 2], 0.0f);
  x[kElems - 1] = 3;
  ZeroVector<float> moved = std::move(x);
  EXPECT_EQ(moved[kElems - 1], 3.0f);
  std::fill(moved.begin(), moved.end(), 1.0f);
  EXPECT_GT(ResidentPages() - before, 15000);  // 64 MiB are 16384 pages of 4 KiB: the measure can see them
  EXPECT_TRUE(ZeroVector<int8_t>().empty());
  EXPECT_THROW(ZeroVector<int8_t>(size_t{1} << 56), std::bad_alloc);
}

TEST(Memory, ARefusalNamesBytesAndPurpose) {
  for (size_t bytes : {~size_t{0}, size_t{1} << 56}) {
    Status status = Memory::Allocate(bytes, "kv pages").status();
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
    EXPECT_NE(status.message().find(std::to_string(bytes)), std::string::npos);
    EXPECT_NE(status.message().find("kv pages"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::device::cpu
