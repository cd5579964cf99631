// PackGroup against the layout that pack.h states, byte for byte.
#include "kernels/pack_group.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/dtype.h"
#include "base/law.h"

namespace lockstep::kernels {
namespace {

TEST(PackGroup, EveryByteStandsWhereTheLayoutSays) {
  constexpr int kOutputs = 48, kCols = 160, kBegin = 64, kCount = 64;
  for (DType t : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    const DTypeInfo info = GetDTypeInfo(t);
    const int block_bytes = static_cast<int>(info.block_bytes), row_bytes = kCols / kBlock * block_bytes;
    std::mt19937 rng(3);
    std::vector<uint8_t> file(static_cast<size_t>(kOutputs * row_bytes));
    for (uint8_t& b : file) b = static_cast<uint8_t>(rng());
    PackRequest request = {t, file.data(), kCols, kOutputs, nullptr, 0, kBegin, kCount};
    request.row_of = [](int output) -> int64_t { return (output * 7 + 5) % kOutputs; };
    std::vector<uint8_t> packed(static_cast<size_t>(PackedBytes(t, kOutputs, kCount)), 0xEE);
    const PackedMatrix m = Pack(request, packed.data(), 0, kOutputs / 16);

    const bool bytes = t == DType::kQ8_0, has_min = t == DType::kQ4_1;
    const int start = block_bytes - (bytes ? 32 : 16), quant_bytes = bytes ? 512 : 256, blocks = kCount / kBlock;
    for (int output = 0; output < kOutputs; ++output) {
      const uint8_t* group = packed.data() + output / 16 * m.group_bytes;
      const int o = output % 16;
      for (int b = 0; b < blocks; ++b) {
        const uint8_t* block =
            &file[static_cast<size_t>(request.row_of(output) * row_bytes)] + (kBegin / kBlock + b) * block_bytes;
        for (int i = 0; i < (bytes ? 32 : 16); ++i) {
          const int expected = bytes ? block[start + i] ^ 0x80 : block[start + i];
          ASSERT_EQ(group[b * quant_bytes + i / 4 * 64 + o * 4 + i % 4], expected) << DTypeName(t) << " " << output;
        }
        for (int i = 0; i < 2; ++i) {
          ASSERT_EQ(group[blocks * quant_bytes + b * 32 + o * 2 + i], block[i]);
          if (!has_min) continue;
          ASSERT_EQ(group[blocks * (quant_bytes + 32) + b * 32 + o * 2 + i], block[2 + i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
