#include "kernels/pack.h"

#include <cmath>
#include <cstring>

#include "base/bits.h"
#include "base/check.h"
#include "kernels/ref/half.h"

namespace lockstep::kernels {
namespace {

constexpr int kSuperBlocks = 8;  // blocks of 32 in a superblock

bool HasSuperblocks(DType t) {
  return GetDTypeInfo(t).block_elems == kSuperBlocks * kBlock;
}

bool HasMin(DType t) {
  return t == DType::kQ4_1 || t == DType::kQ5_1 || t == DType::kQ4_K || t == DType::kQ5_K;
}

int QuantBits(DType t) {
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
  LS_CHECK(false);
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

// One block of 32 of a file row: the file's unsigned quants and what its scale is made of.
struct FileBlock {
  uint8_t quant[kBlock];
  uint16_t scale, min;  // f16; of the superblock where there are superblocks
  uint8_t factor[2];    // superblocks only: of scale and minimum, or of the two halves (int8)
};

void ReadNibbles(const uint8_t* nibbles, uint8_t* quant) {
  for (int j = 0; j < 16; ++j) {
    quant[j] = nibbles[j] & 15;
    quant[j + 16] = nibbles[j] >> 4;
  }
}

void ReadHighBits(const uint8_t* bits, uint8_t* quant) {
  for (int j = 0; j < kBlock; ++j) quant[j] |= static_cast<uint8_t>((bits[j / 8] >> (j % 8) & 1) << 4);
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

FileBlock ReadBlock(DType dtype, const uint8_t* file_row, int64_t index) {
  const DTypeInfo info = GetDTypeInfo(dtype);
  const int64_t per_file_block = info.block_elems / kBlock;
  const uint8_t* p = file_row + index / per_file_block * info.block_bytes;
  const int b = static_cast<int>(index % per_file_block);
  FileBlock out = {};
  out.scale = Bits16(p);
  if (HasMin(dtype)) out.min = Bits16(p + 2);
  switch (dtype) {
    case DType::kQ4_0:
      ReadNibbles(p + 2, out.quant);
      break;
    case DType::kQ4_1:
      ReadNibbles(p + 4, out.quant);
      break;
    case DType::kQ5_0:
      ReadNibbles(p + 6, out.quant);
      ReadHighBits(p + 2, out.quant);
      break;
    case DType::kQ5_1:
      ReadNibbles(p + 8, out.quant);
      ReadHighBits(p + 4, out.quant);
      break;
    case DType::kQ8_0:
      for (int j = 0; j < kBlock; ++j) out.quant[j] = p[2 + j] ^ 0x80;
      break;
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const bool has_high = dtype == DType::kQ5_K;
      const uint8_t* high = p + 16;
      const uint8_t* nibbles = p + (has_high ? 48 : 16) + b / 2 * 32;
      const int shift = b % 2 * 4;
      for (int j = 0; j < kBlock; ++j) {
        const int low = nibbles[j] >> shift & 15;
        out.quant[j] = static_cast<uint8_t>(low | (has_high ? (high[j] >> b & 1) << 4 : 0));
      }
      ReadFactors(p + 4, b, out.factor);
      break;
    }
    case DType::kQ6_K: {  // half a superblock: two times 32 bytes of nibbles, 32 bytes of four bit pairs
      const int quarter = b % 4;
      const uint8_t* nibbles = p + b / 4 * 64 + quarter % 2 * 32;
      const uint8_t* pairs = p + 128 + b / 4 * 32;
      const int shift = quarter / 2 * 4;
      for (int j = 0; j < kBlock; ++j) {
        const int low = nibbles[j] >> shift & 15, high = pairs[j] >> (2 * quarter) & 3;
        out.quant[j] = static_cast<uint8_t>(low | high << 4);
      }
      std::memcpy(out.factor, p + 192 + 2 * b, 2);
      out.scale = Bits16(p + 208);
      break;
    }
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      LS_CHECK(false);
  }
  return out;
}

// One lane of a block of a packed group; `out` is the block's first byte.
void WriteQuants(int bits, const uint8_t* quant, int lane, uint8_t* out) {
  out += lane * 4;
  if (bits == 8) {
    for (int v = 0; v < 8; ++v) std::memcpy(out + v * 64, quant + 4 * v, 4);
    return;
  }
  for (int v = 0; v < 4; ++v) {
    uint8_t four[4];
    for (int t = 0; t < 4; ++t) {
      four[t] = static_cast<uint8_t>((quant[4 * v + t] & 15) | (quant[16 + 4 * v + t] & 15) << 4);
    }
    std::memcpy(out + v * 64, four, 4);
  }
  if (bits == 4) return;
  uint8_t high[2][4] = {};
  for (int j = 0; j < kBlock; ++j) {
    const int shift = bits == 5 ? j / 4 : j % 16 / 4 * 2;
    high[bits == 5 ? 0 : j / 16][j % 4] |= static_cast<uint8_t>(quant[j] >> 4 << shift);
  }
  std::memcpy(out + 256, high[0], 4);
  if (bits == 6) std::memcpy(out + 320, high[1], 4);
}

void PackQuantOutput(const PackRequest& q, const uint8_t* file_row, int lane, uint8_t* group) {
  const GroupLayout layout(q.dtype, q.k_begin, q.k_count);
  const bool super = HasSuperblocks(q.dtype), has_min = HasMin(q.dtype);
  const int num_blocks = q.k_count / kBlock, bits = QuantBits(q.dtype);
  auto put16 = [](uint8_t* p, uint16_t h) { std::memcpy(p, &h, 2); };
  for (int b = 0; b < num_blocks; ++b) {
    const FileBlock block = ReadBlock(q.dtype, file_row, q.k_begin / kBlock + b);
    WriteQuants(bits, block.quant, lane, group + static_cast<int64_t>(b) * layout.quant_bytes);
    uint8_t* scales = group + layout.scales + b * 32;
    if (!super) {
      put16(scales + lane * 2, block.scale);
      if (has_min) put16(group + layout.tops + b * 32 + lane * 2, block.min);
      continue;
    }
    scales[lane] = block.factor[0];
    scales[16 + lane] = block.factor[1];
    uint8_t* top = group + layout.tops + (layout.phase + b) / kSuperBlocks * (has_min ? 64 : 32);
    put16(top + lane * 2, block.scale);
    if (has_min) put16(top + 32 + lane * 2, block.min ^ 0x8000);
  }
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
  for (int group = group_begin; group < group_end; ++group) {
    uint8_t* out = destination + group * group_bytes;
    if (group * 16 + 16 > q.num_outputs) std::memset(out, 0, static_cast<size_t>(group_bytes));
    for (int lane = 0; lane < 16 && group * 16 + lane < q.num_outputs; ++lane) {
      int output = group * 16 + lane;
      int64_t row = q.row_of ? q.row_of(output) : q.first_row + output;
      const uint8_t* file_row = q.source + row * row_bytes;
      if (IsQuantised(q.dtype)) {
        PackQuantOutput(q, file_row, lane, out);
      } else {
        PackFloatOutput(q, file_row, lane, out);
      }
    }
  }
  return {q.dtype, q.num_outputs, CeilDiv(q.num_outputs, 16), q.k_count, layout.phase, group_bytes, destination};
}

namespace {

void DequantBlock(DType dtype, const FileBlock& block, float* out) {
  const float d = ref::F16ToF32(block.scale), m = ref::F16ToF32(block.min);
  const bool super = HasSuperblocks(dtype);
  for (int j = 0; j < kBlock; ++j) {
    if (dtype == DType::kQ6_K) {
      const float scale = d * static_cast<float>(static_cast<int8_t>(block.factor[j / 16]));
      out[j] = scale * static_cast<float>(block.quant[j] - 32);
    } else if (HasMin(dtype)) {
      const float scale = super ? d * static_cast<float>(block.factor[0]) : d;
      const float min = super ? -(m * static_cast<float>(block.factor[1])) : m;
      out[j] = std::fma(scale, static_cast<float>(block.quant[j]), min);
    } else {
      out[j] = d * static_cast<float>(block.quant[j] - (1 << (QuantBits(dtype) - 1)));
    }
  }
}

}  // namespace

void DequantRow(DType dtype, const uint8_t* row, int64_t num_elems, float* out) {
  if (IsQuantised(dtype)) {
    for (int64_t b = 0; b < num_elems / kBlock; ++b) {
      DequantBlock(dtype, ReadBlock(dtype, row, b), out + b * kBlock);
    }
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
