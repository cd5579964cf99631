#include "kernels/pack_group.h"

#include <cstring>

#include "base/check.h"
#include "base/law.h"

namespace lockstep::kernels {
namespace {

using Words = uint32_t __attribute__((vector_size(16)));

Words Load(const uint8_t* p) {
  Words w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

// Word v of rows i .. i + 3 goes to out + v * 64: the interleaving of pack.h for four outputs and 16 bytes of each.
void Transpose(const uint8_t* const* rows, int64_t offset, Words flip, uint8_t* out) {
  const Words a = Load(rows[0] + offset) ^ flip, b = Load(rows[1] + offset) ^ flip;
  const Words c = Load(rows[2] + offset) ^ flip, d = Load(rows[3] + offset) ^ flip;
  const Words ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Words cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Words words[4] = {
      __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
      __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
  for (int v = 0; v < 4; ++v) std::memcpy(out + v * 64, &words[v], sizeof words[v]);
}

template <int kBlockBytes, int kQuantStart, bool kHasMin>
void PackBlocks(const PackRequest& q, const uint8_t* const* rows, const uint8_t* const* ahead, uint8_t* group) {
  constexpr bool kBytes = kBlockBytes - kQuantStart == 32;  // a quant a byte; else a nibble
  constexpr uint32_t kFlip = kBytes ? 0x80808080u : 0;      // signed to unsigned
  const int num_blocks = q.k_count / kBlock;
  uint8_t* scales = group + static_cast<int64_t>(num_blocks) * (kBytes ? 512 : 256);
  uint8_t* mins = scales + static_cast<int64_t>(num_blocks) * 32;
  for (int b = 0; b < num_blocks; ++b) {
    const int64_t at = (q.k_begin / kBlock + b) * kBlockBytes;
    uint8_t* out = group + static_cast<int64_t>(b) * (kBytes ? 512 : 256);
    for (int i = 0; i < 16; ++i) __builtin_prefetch(ahead[i] + at);
    const Words flip = {kFlip, kFlip, kFlip, kFlip};
    for (int i = 0; i < 16; i += 4) {
      Transpose(rows + i, at + kQuantStart, flip, out + i * 4);
      if (kBytes) Transpose(rows + i, at + kQuantStart + 16, flip, out + 256 + i * 4);
    }
    for (int i = 0; i < 16; ++i) std::memcpy(scales + b * 32 + i * 2, rows[i] + at, 2);
    if (kHasMin) {
      for (int i = 0; i < 16; ++i) std::memcpy(mins + b * 32 + i * 2, rows[i] + at + 2, 2);
    }
  }
}

}  // namespace

bool HasPackGroup(DType dtype) {
  return dtype == DType::kQ4_0 || dtype == DType::kQ4_1 || dtype == DType::kQ8_0;
}

void PackGroup(const PackRequest& q, const uint8_t* const* rows, const uint8_t* const* ahead, uint8_t* group) {
  LS_CHECK(HasPackGroup(q.dtype));
  if (q.dtype == DType::kQ4_0) PackBlocks<18, 2, false>(q, rows, ahead, group);
  if (q.dtype == DType::kQ4_1) PackBlocks<20, 4, true>(q, rows, ahead, group);
  if (q.dtype == DType::kQ8_0) PackBlocks<34, 2, false>(q, rows, ahead, group);
}

}  // namespace lockstep::kernels
