// The CPU kernels of a step, as one table of functions an instruction set. Every table gives the
// same bits.
//
// Shapes:  beside each argument; rows are T, the rows of the step
// Units:   strides (ld_*) in elements
// Errors:  none: shapes are checked when the step is prepared; a bad one here is a bug (LS_DCHECK)
// Threads: any; a call writes only the outputs it names
// Capture: yes: no allocation, no system call
// Order:   docs/numerics.md; kernels/ref/ is the definition that the tests compare with, bit for bit
// Source:  ours; the block formats are GGUF's, repacked (pack.h)
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/law.h"

namespace lockstep::kernels {

// Rows of activations quantised to int8 in blocks of 32. K is padded to a multiple of 32 with
// zeros.
struct QuantRows {
  int8_t* q;          // [T, ld_q]
  float* scale;       // [T, ld_block]  one a block
  int32_t* sum;       // [T, ld_block]  sum of the block's int8
  float* scaled_sum;  // [T, ld_block]  scale * float(sum), one rounding
  int32_t* half_sum;  // [T, ld_block]  sum of the block's first 16 int8
  int64_t ld_q;
  int64_t ld_block;
};

// A rank's slice of a weight matrix, repacked: groups of 16 outputs, K in order (pack.h describes
// the bytes).
struct PackedMatrix {
  DType dtype;
  int num_outputs;      // real outputs; the last group is padded with zero weights
  int num_groups;       // ceil(num_outputs / 16)
  int k;                // elements of K, a multiple of 32 for quantised types
  int block_phase;      // blocks of the first superblock that lie before this slice; 0 for types without superblocks
  int64_t group_bytes;  // from one group to the next
  const uint8_t* data;
};

// How the K dimension of a matmul is summed: leaves in order, each a chain from zero, merged as a
// postfix program; where emit[i] >= 0 the one remaining partial sum goes to out[emit[i]] and the
// stack is empty again. A column-parallel matmul has one leaf and one output.
struct LeafPlan {
  int num_leaves;
  int k_end[kMaxLeaves];  // elements, ascending; multiples of 32 but for the last
  int merges_after[kMaxLeaves];
  int emit[kMaxLeaves];
};

struct MatmulArgs {
  const PackedMatrix* weight;
  int group_begin, group_end;
  const QuantRows* quant;  // for quantised weights
  const float* x;          // [T, ld_x] for float weights
  int64_t ld_x;
  int rows;
  const LeafPlan* plan;
  float* out[3];  // [T, ld_out] each; column = 16 * group + lane
  int64_t ld_out;
};

// x <- x + tree sum of the partials (if any), then RMSNorm, then the forms that the next matmul
// reads.
struct NormArgs {
  float* x;                      // [D] one row, updated in place; padded to 16 with zeros
  const float* const* partials;  // [num_partials] pointers to [D], or null
  const int* merges_after;       // [num_partials]
  int num_partials;
  const float* weight;  // [D]
  float eps;
  int d;
  float* out;  // [D] normalised row
};

// Rows that one attention call takes. Where many rows read a page, it is widened to f32 once a call.
inline constexpr int kAttentionRows = 16;
inline constexpr int kAttentionHeads = 8;

struct AttentionRow {
  const float* q;  // [num_heads, Dh], roped; heads that share one kv head
  float* out;      // [num_heads, Dh]
  int num_keys;    // of the row's path, >= 1
  // Keys of the row's path in position order, in chunks of kKvChunk. Chunk c < num_linear_chunks is page c. Later ones are
  // gathered: key j of the tail is tail_k[j], tail_v[j].
  int num_linear_chunks;
  const void* const* tail_k;
  const void* const* tail_v;
  float* partials = nullptr;  // if not null, takes the chunks' results instead of `out` (AttentionArgs::partial_stride)
};

// Rows of one sequence, which share its pages.
struct AttentionArgs {
  const AttentionRow* rows;
  int num_rows;   // 1..kAttentionRows
  int num_heads;  // 1..kAttentionHeads
  int head_dim;   // Dh, a multiple of 16; of 32 for kQ8_0
  float scale;
  DType kv_dtype;  // kF16, kF32 or kQ8_0
  // page_k[c], page_v[c] point to [kKvChunk, Dh].
  const void* const* page_k;
  const void* const* page_v;
  float* scratch;  // [AttentionScratchElems(Dh)]
  // For rows with partials: chunks [chunk_begin, chunk_end) only, each left by itself, so that threads can share the chunks
  // of a row and MergeAttentionArgs can bring them together in order. Chunk c of a row lies partial_stride elements behind
  // chunk c - 1: values not divided yet [num_heads, Dh], then {max, sum} [num_heads, 2].
  int chunk_begin = 0, chunk_end = 0;
  int64_t partial_stride = 0;
};

// One head of one row whose chunks were attended apart.
struct MergeAttentionArgs {
  const float* values;   // [Dh] of chunk 0
  const float* max_sum;  // [2] of chunk 0
  int64_t stride;        // elements from chunk to chunk, for both
  int num_chunks;
  int head_dim;
  float* out;  // [Dh]
};

// Elements of one chunk of one row.
inline constexpr int AttentionPartialElems(int num_heads, int head_dim) {
  return num_heads * (head_dim + 2);
}

// One chunk's keys and values in f32.
inline constexpr int AttentionScratchElems(int head_dim) {
  return 2 * kKvChunk * head_dim;
}

struct ArgmaxResult {
  float value;
  int32_t index;
  bool finite;  // no NaN or infinity among the values
};

struct CpuKernels {
  const char* name;
  void (*matmul)(const MatmulArgs&);
  // False when the sum of squares is not finite.
  bool (*add_norm)(const NormArgs&);
  // One row of k elements (padded to 32 with zeros) into row `row` of `out`.
  void (*quantise_row)(const float* x, int k, const QuantRows& out, int row);
  // x[i] = x[i] + bias[i]; n a multiple of 16 (padding included).
  void (*add_bias)(float* x, const float* bias, int n);
  // y[i] = silu(gate[i]) * up[i]; n a multiple of 16 (padding included).
  void (*silu_mul)(const float* gate, const float* up, float* y, int n);
  // Rotates each head's halves: (a, b) -> (a cos - b sin, a sin + b cos). cos, sin: [Dh / 2].
  void (*rope)(float* heads, int num_heads, int head_dim, const float* cos, const float* sin);
  // f32 -> a key or value row in the cache's type, n elements. kQ8_0 (n a multiple of 32): n int8, then an f16 scale for
  // each block of 32.
  void (*store_kv)(const float* x, DType kv_dtype, void* out, int n);
  void (*attention)(const AttentionArgs&);
  void (*merge_attention)(const MergeAttentionArgs&);
  ArgmaxResult (*argmax)(const float* x, int n);
  // y[i] = exp(x[i]).
  void (*exp)(const float* x, float* y, int n);
  // y[i] = log(x[i]), x > 0 and normal.
  void (*log)(const float* x, float* y, int n);
};

const CpuKernels& GenericKernels();
const CpuKernels& Avx2Kernels();     // needs AVX2, FMA, F16C
const CpuKernels& AvxVnniKernels();  // needs the same and AVX-VNNI
const CpuKernels& Avx512Kernels();   // needs AVX-512 F BW VL DQ VNNI
const CpuKernels& AmxKernels();      // needs the same, AMX-INT8 and the process's tile permission

}  // namespace lockstep::kernels
