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

struct QuantLayout {
  int quant_bytes;       // of a packed block of 16 outputs
  int file_quant_start;  // offset of the quants in a file block
  bool has_min;
};

QuantLayout LayoutOf(DType t) {
  switch (t) {
    case DType::kQ4_0:
      return {256, 2, false};
    case DType::kQ4_1:
      return {256, 4, true};
    case DType::kQ8_0:
      return {512, 2, false};
    default:
      break;
  }
  LS_CHECK(false);
  return {};
}

int64_t GroupBytes(DType dtype, int k) {
  if (!IsQuantised(dtype)) {
    return AlignUp<int64_t>(static_cast<int64_t>(k) * 16 * GetDTypeInfo(dtype).block_bytes, 64);
  }
  QuantLayout layout = LayoutOf(dtype);
  int64_t blocks = k / kBlock;
  return AlignUp<int64_t>(blocks * (layout.quant_bytes + 32 + (layout.has_min ? 32 : 0)), 64);
}

void PackQuantOutput(const PackRequest& q, const uint8_t* file_row, int lane, uint8_t* group) {
  const QuantLayout layout = LayoutOf(q.dtype);
  const int64_t block_bytes = GetDTypeInfo(q.dtype).block_bytes;
  const int num_blocks = q.k_count / kBlock;
  uint8_t* scales = group + static_cast<int64_t>(num_blocks) * layout.quant_bytes;
  uint8_t* mins = scales + static_cast<int64_t>(num_blocks) * 32;
  for (int b = 0; b < num_blocks; ++b) {
    const uint8_t* block = file_row + (q.k_begin / kBlock + b) * block_bytes;
    const uint8_t* quants = block + layout.file_quant_start;
    uint8_t* out = group + static_cast<int64_t>(b) * layout.quant_bytes + lane * 4;
    if (q.dtype == DType::kQ8_0) {
      for (int i = 0; i < 32; ++i) out[(i / 4) * 64 + i % 4] = quants[i] ^ 0x80;
    } else {  // the file's byte i holds elements i and i + 16, as ours does: four bytes move together
      for (int v = 0; v < 4; ++v) std::memcpy(out + v * 64, quants + 4 * v, 4);
    }
    std::memcpy(scales + b * 32 + lane * 2, block, 2);
    if (layout.has_min) std::memcpy(mins + b * 32 + lane * 2, block + 2, 2);
  }
}

void PackFloatOutput(const PackRequest& q, const uint8_t* file_row, int lane, uint8_t* group) {
  const int64_t bytes = GetDTypeInfo(q.dtype).block_bytes;
  for (int64_t k = 0; k < q.k_count; ++k) {
    std::memcpy(group + (k * 16 + lane) * bytes, file_row + (q.k_begin + k) * bytes, static_cast<size_t>(bytes));
  }
}

}  // namespace

int64_t PackedBytes(DType dtype, int num_outputs, int k_count) {
  return GroupBytes(dtype, k_count) * CeilDiv(num_outputs, 16);
}

PackedMatrix Pack(const PackRequest& q, uint8_t* destination, int group_begin, int group_end) {
  const DTypeInfo info = GetDTypeInfo(q.dtype);
  if (IsQuantised(q.dtype)) {
    LS_CHECK_EQ(q.k_begin % kBlock, 0);
    LS_CHECK_EQ(q.k_count % kBlock, 0);
  }
  const int64_t row_bytes = q.source_cols / info.block_elems * info.block_bytes;
  const int64_t group_bytes = GroupBytes(q.dtype, q.k_count);
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
        PackQuantOutput(q, file_row, lane, out);
      } else {
        PackFloatOutput(q, file_row, lane, out);
      }
    }
  }
  return {q.dtype, q.num_outputs, CeilDiv(q.num_outputs, 16), q.k_count, group_bytes, destination};
}

void DequantRow(DType dtype, const uint8_t* row, int64_t num_elems, float* out) {
  auto half = [](const uint8_t* p) {
    uint16_t h;
    std::memcpy(&h, p, 2);
    return ref::F16ToF32(h);
  };
  const DTypeInfo info = GetDTypeInfo(dtype);
  for (int64_t i = 0; i < num_elems; ++i) {
    const uint8_t* block = row + i / info.block_elems * info.block_bytes;
    int j = static_cast<int>(i % info.block_elems);
    switch (dtype) {
      case DType::kF32:
        std::memcpy(out + i, block, 4);
        break;
      case DType::kF16:
        out[i] = half(block);
        break;
      case DType::kBF16: {
        uint16_t h;
        std::memcpy(&h, block, 2);
        out[i] = ref::BF16ToF32(h);
        break;
      }
      case DType::kQ8_0:
        out[i] = half(block) * static_cast<float>(static_cast<int8_t>(block[2 + j]));
        break;
      case DType::kQ4_0: {
        int q = j < 16 ? block[2 + j] & 15 : block[2 + j - 16] >> 4;
        out[i] = half(block) * static_cast<float>(q - 8);
        break;
      }
      case DType::kQ4_1: {
        int q = j < 16 ? block[4 + j] & 15 : block[4 + j - 16] >> 4;
        out[i] = std::fma(half(block), static_cast<float>(q), half(block + 2));
        break;
      }
    }
  }
}

}  // namespace lockstep::kernels
