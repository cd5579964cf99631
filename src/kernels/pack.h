// Repacking of weights from a model file into the layout that the CPU kernels walk.
//
// Shapes:  source [rows, cols] row-major as in the file; packed: groups of 16 outputs, K in order
// Layout:  quantised, a group: the blocks' quants, then f16 scales [blocks, 16], then for Q4_1 f16 minima [blocks, 16].
//          Q4 quants of a block, 256 bytes: byte v*64 + o*4 + t holds element 4v+t of output o in its low nibble and
//          element 16+4v+t in its high one. Q8 quants, 512 bytes: byte v*64 + o*4 + t holds element 4v+t, plus 128.
//          Float, a group: [K, 16] in the file's type.
// Units:   bytes, elements as named
// Capture: no: load time only
// Source:  GGUF block formats; the interleaving is ours (one aligned vector = four K of sixteen outputs)
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cpu/kernels.h"

namespace lockstep::kernels {

// What to take from the file's tensor. Quantised types: k_begin and k_count are multiples of 32.
struct PackRequest {
  DType dtype;
  const uint8_t* source;
  int64_t source_cols;  // full row length in elements
  int num_outputs;
  // File row of an output; null means first_row + output.
  std::function<int64_t(int)> row_of;
  int64_t first_row = 0;
  int64_t k_begin = 0;
  int k_count = 0;
};

// Bytes that Pack writes; a multiple of 64.
int64_t PackedBytes(DType dtype, int num_outputs, int k_count);

// Writes groups [group_begin, group_end) to `destination` (64-byte aligned, PackedBytes long) and describes the whole.
// Threads may pack disjoint ranges of groups of one matrix at once.
PackedMatrix Pack(const PackRequest& request, uint8_t* destination, int group_begin, int group_end);

// One row of a file tensor as f32: the embedding look-up. d * q + m is one fused multiply-add.
void DequantRow(DType dtype, const uint8_t* row, int64_t num_elems, float* out);

}  // namespace lockstep::kernels
