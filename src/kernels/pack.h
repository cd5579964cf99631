// Repacking of weights from a model file into the layout that the CPU kernels walk.
//
// Shapes:  source [rows, cols] row-major as in the file; packed: groups of 16 outputs, K in order
// Layout:  quantised, a group: the blocks' quants, then their scales.
//          Quants of a block are unsigned: the file's, before its offset is taken off (Q8_0: plus 128). Bit by bit:
//            4 bits, 256 bytes: byte v*64 + o*4 + t holds element 4v+t of output o in its low nibble and element
//              16+4v+t in its high one;
//            5 bits (Q5_0, Q5_1, Q5_K): then 64 bytes; bit v of byte o*4 + t is the upper bit of element 4v+t;
//            6 bits (Q6_K): then 2 x 64 bytes; the bit pair v of byte h*64 + o*4 + t is the upper two bits of element
//              16h+4v+t;
//            8 bits, 512 bytes: byte v*64 + o*4 + t holds element 4v+t.
//          Scales of Q4_0, Q5_0, Q8_0: f16 [blocks, 16]. Q4_1, Q5_1: then f16 minima [blocks, 16].
//          Q4_K, Q5_K: u8 [blocks, 2, 16], scale and minimum; then f16 [superblocks, 2, 16], d and minus dmin.
//          Q6_K: int8 [blocks, 2, 16], the scales of both halves; then f16 d [superblocks, 16].
//          A slice may begin and end inside a superblock: block b belongs to the slice's superblock
//          (b + block_phase) / 8. The integers are kept apart from d, for the bytes' sake; their product is exact.
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

// Bytes that Pack writes; a multiple of 64. k_begin as in the request: it says how many superblocks a slice touches.
int64_t PackedBytes(DType dtype, int num_outputs, int k_count, int64_t k_begin = 0);

// Writes groups [group_begin, group_end) to `destination` (64-byte aligned, PackedBytes long) and describes the whole.
// Threads may pack disjoint ranges of groups of one matrix at once.
PackedMatrix Pack(const PackRequest& request, uint8_t* destination, int group_begin, int group_end);

// One row of a file tensor as f32: the embedding look-up. scale * q + minimum is one fused multiply-add; scale * q alone
// is exact in every type.
void DequantRow(DType dtype, const uint8_t* row, int64_t num_elems, float* out);

}  // namespace lockstep::kernels
