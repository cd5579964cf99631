#include "kernels/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bits.h"
#include "base/check.h"
#include "kernels/pack_group.h"
#include "kernels/ref/half.h"

namespace lockstep::kernels {
namespace {

constexpr int kSuperBlocks = 8;  // blocks of 32 in a superblock

constexpr bool HasSuperblocks(DType t) {
  return GetDTypeInfo(t).block_elems == kSuperBlocks * kBlock;
}

constexpr bool HasMin(DType t) {
  return t == DType::kQ4_1 || t == DType::kQ5_1 || t == DType::kQ4_K || t == DType::kQ5_K;
}

constexpr int QuantBits(DType t) {
  switch (t) {
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ4_K:
      return 4;
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return 5;
    case DType::kQ6_K:
      return 6;
    case DType::kQ8_0:
      return 8;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  return 0;
}

// Where the parts of a packed group lie, in bytes.
struct GroupLayout {
  GroupLayout(DType t, int64_t k_begin, int k) {
    if (!IsQuantised(t)) {
      bytes = AlignUp<int64_t>(static_cast<int64_t>(k) * 16 * GetDTypeInfo(t).block_bytes, 64);
      return;
    }
    const int64_t blocks = k / kBlock;
    quant_bytes = QuantBits(t) * 64;
    scales = blocks * quant_bytes;
    tops = scales + blocks * 32;
    int64_t end = tops;
    if (HasSuperblocks(t)) {
      phase = static_cast<int>(k_begin / kBlock % kSuperBlocks);
      end += CeilDiv<int64_t>(phase + blocks, kSuperBlocks) * (HasMin(t) ? 64 : 32);
    } else if (HasMin(t)) {
      end += blocks * 32;
    }
    bytes = AlignUp<int64_t>(end, 64);
  }

  int quant_bytes = 0;  // of a block
  int64_t scales = 0;   // 32 bytes a block
  int64_t tops = 0;     // what follows the scales: minima, or the superblocks' f16
  int64_t bytes = 0;    // of the group
  int phase = 0;
};

uint16_t Bits16(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

uint32_t Word(const uint8_t* p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

// One block of 32 of a file row as one lane of a packed block: word v is four bytes of the packed vector v.
struct FileBlock {
  uint32_t low[8];      // nibbles in four words; 8 bits in eight
  uint32_t high[2];     // 5 bits: one word of bits; 6 bits: two words of bit pairs
  uint16_t scale, min;  // f16; of the superblock where there are superblocks
  uint8_t factor[2];    // superblocks only: of scale and minimum, or of the two halves (int8)
};

// Element j, unsigned.
template <DType kType>
int Quant(const FileBlock& block, int j) {
  constexpr int kBits = QuantBits(kType);
  const int byte = j % 4 * 8, v = j / 4;
  if (kBits == 8) return static_cast<int>(block.low[v] >> byte & 255);
  uint32_t quant = block.low[v % 4] >> (byte + v / 4 * 4) & 15;
  if (kBits == 5) quant |= (block.high[0] >> (byte + v) & 1) << 4;
  if (kBits == 6) quant |= (block.high[v / 4] >> (byte + v % 4 * 2) & 3) << 4;
  return static_cast<int>(quant);
}

// Bit j becomes bit j / 4 of byte j % 4.
uint32_t SpreadBits(uint32_t bits) {
  uint32_t out = 0;
  for (int t = 0; t < 4; ++t) {
    uint32_t x = bits >> t & 0x11111111;  // every fourth bit, moved together
    x = (x | x >> 3) & 0x03030303;
    x = (x | x >> 6) & 0x000f000f;
    out |= ((x | x >> 12) & 0xff) << (8 * t);
  }
  return out;
}

// 32 bytes, a nibble of each.
void TakeNibbles(const uint8_t* p, int shift, FileBlock* out) {
  for (int v = 0; v < 4; ++v) {
    const uint32_t first = Word(p + 4 * v) >> shift & 0x0f0f0f0f, second = Word(p + 16 + 4 * v) >> shift & 0x0f0f0f0f;
    out->low[v] = first | second << 4;
  }
}

// Eight factors and eight minima of 6 bits in twelve bytes.
void ReadFactors(const uint8_t* packed, int b, uint8_t* factor) {
  if (b < 4) {
    factor[0] = packed[b] & 63;
    factor[1] = packed[b + 4] & 63;
  } else {
    factor[0] = static_cast<uint8_t>((packed[b + 4] & 15) | (packed[b - 4] >> 6 << 4));
    factor[1] = static_cast<uint8_t>((packed[b + 4] >> 4) | (packed[b] >> 6 << 4));
  }
}

template <DType kType>
FileBlock ReadBlock(const uint8_t* file_row, int64_t index) {
  constexpr DTypeInfo kInfo = GetDTypeInfo(kType);
  constexpr int64_t kPerFileBlock = kInfo.block_elems / kBlock;
  constexpr bool kHasMin = HasMin(kType);
  const uint8_t* p = file_row + index / kPerFileBlock * kInfo.block_bytes;
  const int b = static_cast<int>(index % kPerFileBlock);
  FileBlock out = {};
  out.scale = Bits16(kType == DType::kQ6_K ? p + 208 : p);
  if (kHasMin) out.min = Bits16(p + 2);
  if constexpr (kType == DType::kQ8_0) {
    for (int v = 0; v < 8; ++v) out.low[v] = Word(p + 2 + 4 * v) ^ 0x80808080;
  } else if constexpr (kType == DType::kQ6_K) {  // half a superblock: 2 x 32 bytes of nibbles, 32 of four bit pairs
    const int quarter = b % 4;
    TakeNibbles(p + b / 4 * 64 + quarter % 2 * 32, quarter / 2 * 4, &out);
    const uint8_t* pairs = p + 128 + b / 4 * 32;
    for (int v = 0; v < 8; ++v) {
      out.high[v / 4] |= (Word(pairs + 4 * v) >> (2 * quarter) & 0x03030303) << (v % 4 * 2);
    }
    std::memcpy(out.factor, p + 192 + 2 * b, 2);
  } else if constexpr (HasSuperblocks(kType)) {
    constexpr bool kHigh = kType == DType::kQ5_K;
    TakeNibbles(p + (kHigh ? 48 : 16) + b / 2 * 32, b % 2 * 4, &out);
    if (kHigh) {
      for (int v = 0; v < 8; ++v) out.high[0] |= (Word(p + 16 + 4 * v) >> b & 0x01010101) << v;
    }
    ReadFactors(p + 4, b, out.factor);
  } else {  // the file's byte i holds elements i and i + 16, as ours does
    constexpr int kBitBytes = QuantBits(kType) == 5 ? 4 : 0;
    const uint8_t* after_scales = p + (kHasMin ? 4 : 2);
    for (int v = 0; v < 4; ++v) out.low[v] = Word(after_scales + kBitBytes + 4 * v);
    if (kBitBytes > 0) out.high[0] = SpreadBits(Word(after_scales));
  }
  return out;
}

template <DType kType>
void PackQuantOutput(const PackRequest& q, const uint8_t* file_row, int lane, uint8_t* group) {
  constexpr bool kSuper = HasSuperblocks(kType), kHasMin = HasMin(kType);
  constexpr int kBits = QuantBits(kType);
  const GroupLayout layout(kType, q.k_begin, q.k_count);
  const int num_blocks = q.k_count / kBlock;
  auto put = [](uint8_t* p, auto value) { std::memcpy(p, &value, sizeof value); };
  for (int b = 0; b < num_blocks; ++b) {
    const FileBlock block = ReadBlock<kType>(file_row, q.k_begin / kBlock + b);
    uint8_t* quants = group + static_cast<int64_t>(b) * layout.quant_bytes + lane * 4;
    for (int v = 0; v < (kBits == 8 ? 8 : 4); ++v) put(quants + v * 64, block.low[v]);
    if (kBits == 5 || kBits == 6) put(quants + 256, block.high[0]);
    if (kBits == 6) put(quants + 320, block.high[1]);
    uint8_t* scales = group + layout.scales + b * 32;
    if constexpr (!kSuper) {
      put(scales + lane * 2, block.scale);
      if (kHasMin) put(group + layout.tops + b * 32 + lane * 2, block.min);
    } else {
      scales[lane] = block.factor[0];
      scales[16 + lane] = block.factor[1];
      uint8_t* top = group + layout.tops + (layout.phase + b) / kSuperBlocks * (kHasMin ? 64 : 32);
      put(top + lane * 2, block.scale);
      if (kHasMin) put(top + 32 + lane * 2, static_cast<uint16_t>(block.min ^ 0x8000));
    }
  }
}

// f of the type as a template argument.
template <class F>
void ForQuantType(DType t, F f) {
  switch (t) {
    case DType::kQ4_0:
      return f.template operator()<DType::kQ4_0>();
    case DType::kQ4_1:
      return f.template operator()<DType::kQ4_1>();
    case DType::kQ5_0:
      return f.template operator()<DType::kQ5_0>();
    case DType::kQ5_1:
      return f.template operator()<DType::kQ5_1>();
    case DType::kQ8_0:
      return f.template operator()<DType::kQ8_0>();
    case DType::kQ4_K:
      return f.template operator()<DType::kQ4_K>();
    case DType::kQ5_K:
      return f.template operator()<DType::kQ5_K>();
    case DType::kQ6_K:
      return f.template operator()<DType::kQ6_K>();
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  LS_CHECK(false);
}

void PackFloatOutput(const PackRequest& q, const uint8_t* file_row, int lane, uint8_t* group) {
  const int64_t bytes = GetDTypeInfo(q.dtype).block_bytes;
  for (int64_t k = 0; k < q.k_count; ++k) {
    std::memcpy(group + (k * 16 + lane) * bytes, file_row + (q.k_begin + k) * bytes, static_cast<size_t>(bytes));
  }
}

}  // namespace

int64_t PackedBytes(DType dtype, int num_outputs, int k_count, int64_t k_begin) {
  return GroupLayout(dtype, k_begin, k_count).bytes * CeilDiv(num_outputs, 16);
}

PackedMatrix Pack(const PackRequest& q, uint8_t* destination, int group_begin, int group_end) {
  const DTypeInfo info = GetDTypeInfo(q.dtype);
  if (IsQuantised(q.dtype)) {
    LS_CHECK_EQ(q.k_begin % kBlock, 0);
    LS_CHECK_EQ(q.k_count % kBlock, 0);
  }
  const int64_t row_bytes = q.source_cols / info.block_elems * info.block_bytes;
  const GroupLayout layout(q.dtype, q.k_begin, q.k_count);
  const int64_t group_bytes = layout.bytes;
  auto row_at = [&](int output) { return q.source + (q.row_of ? q.row_of(output) : q.first_row + output) * row_bytes; };
  for (int group = group_begin; group < group_end; ++group) {
    uint8_t* out = destination + group * group_bytes;
    if (group * 16 + 16 > q.num_outputs) {
      std::memset(out, 0, static_cast<size_t>(group_bytes));
    } else if (HasPackGroup(q.dtype)) {
      const uint8_t *rows[16], *ahead[16];
      for (int lane = 0; lane < 16; ++lane) {
        rows[lane] = row_at(group * 16 + lane);
        ahead[lane] = group + 1 < group_end ? row_at(std::min(group * 16 + 16 + lane, q.num_outputs - 1)) : rows[lane];
      }
      PackGroup(q, rows, ahead, out);
      continue;
    }
    for (int lane = 0; lane < 16 && group * 16 + lane < q.num_outputs; ++lane) {
      const uint8_t* file_row = row_at(group * 16 + lane);
      if (IsQuantised(q.dtype)) {
        ForQuantType(q.dtype, [&]<DType kType>() { PackQuantOutput<kType>(q, file_row, lane, out); });
      } else {
        PackFloatOutput(q, file_row, lane, out);
      }
    }
  }
  return {q.dtype, q.num_outputs, CeilDiv(q.num_outputs, 16), q.k_count, layout.phase, group_bytes, destination};
}

namespace {

template <DType kType>
void DequantBlocks(const uint8_t* row, int64_t num_blocks, float* out) {
  for (int64_t b = 0; b < num_blocks; ++b, out += kBlock) {
    const FileBlock block = ReadBlock<kType>(row, b);
    const float d = ref::F16ToF32(block.scale), m = ref::F16ToF32(block.min);
    for (int j = 0; j < kBlock; ++j) {
      const int quant = Quant<kType>(block, j);
      if constexpr (kType == DType::kQ6_K) {
        out[j] = d * static_cast<float>(static_cast<int8_t>(block.factor[j / 16])) * static_cast<float>(quant - 32);
      } else if constexpr (HasSuperblocks(kType)) {
        const float scale = d * static_cast<float>(block.factor[0]), min = -(m * static_cast<float>(block.factor[1]));
        out[j] = std::fma(scale, static_cast<float>(quant), min);
      } else if constexpr (HasMin(kType)) {
        out[j] = std::fma(d, static_cast<float>(quant), m);
      } else {
        out[j] = d * static_cast<float>(quant - (1 << (QuantBits(kType) - 1)));
      }
    }
  }
}

}  // namespace

void DequantRow(DType dtype, const uint8_t* row, int64_t num_elems, float* out) {
  if (IsQuantised(dtype)) {
    ForQuantType(dtype, [&]<DType kType>() { DequantBlocks<kType>(row, num_elems / kBlock, out); });
    return;
  }
  for (int64_t i = 0; i < num_elems; ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(out + i, row + i * 4, 4);
    } else {
      const uint16_t h = Bits16(row + i * 2);
      out[i] = dtype == DType::kF16 ? ref::F16ToF32(h) : ref::BF16ToF32(h);
    }
  }
}

}  // namespace lockstep::kernels
