// What one member (a thread of a rank) holds while it runs a step: the kernels, its buffers, its rank's cache, and the
// sum that is still pending between a row-parallel layer and the next norm.
//
// Shapes:   buffers [T, padded columns]; see each member
// Threads:  one object a member; `team` is shared by the threads of a rank, between SyncRank calls
// Capture:  Prepare allocates; everything else neither allocates nor calls the system. Buffers become resident when they
//           are first used, so the first step of a width or of a page of the cache takes page faults, and where the
//           system has promised more memory than it has it may end the process there (docs/errors.md)
// Order:    docs/numerics.md; who computes a row, and in which buffer, does not enter a result
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/law.h"
#include "comm/cpu_shared.h"
#include "device/cpu/memory.h"
#include "kernels/cpu/kernels.h"
#include "model/batch.h"
#include "model/taps.h"
#include "trace/step_breakdown.h"

namespace lockstep::comm {
class Member;
}
namespace lockstep::kernels {
struct CpuKernels;
struct QuantRows;
}  // namespace lockstep::kernels
namespace lockstep::kv {
class KvStore;
}

namespace lockstep::model {

struct GroupRange;
struct ModelConfig;
struct RankShard;
class RankWeights;
struct RopeTable;
struct ShardPlan;

// Rows of earlier steps that the paths of a step's rows may name.
inline constexpr int kMaxPathRows = 256;
// Hidden states that a draft head keeps between its steps.
inline constexpr int kHiddenStates = 512;

// Rows up to this many are normed and quantised by every thread for itself, which is cheaper than a barrier.
inline constexpr int kPrivateRows = 4;

// Activations as the next matmul reads them: f32 rows, and the same in int8 blocks where a weight wants them.
struct Activations {
  Activations() = default;
  Activations(int rows, int cols);
  float* Row(int row) { return f32.data() + static_cast<int64_t>(row) * ld; }
  kernels::QuantRows Quant();

  int64_t ld = 0, ld_block = 0;
  device::cpu::ZeroVector<float> f32;
  device::cpu::ZeroVector<int8_t> q;
  device::cpu::ZeroVector<float> scale, scaled_sum;
  device::cpu::ZeroVector<int32_t> sum, half_sum;
};

// Shared by the threads of a rank.
struct TeamBuffers {
  TeamBuffers(const ModelConfig& config, const RankShard& shard, int max_rows, int max_pages_per_sequence, int threads);

  int64_t ld_x, ld_q, ld_kv, ld_ffn;
  device::cpu::ZeroVector<float> x;         // [T, D] residual stream
  Activations normed;                       // [T, D]
  device::cpu::ZeroVector<float> q, k, v;   // [T, heads of this rank x Dh]
  Activations attended;                     // [T, query heads of this rank x Dh]
  device::cpu::ZeroVector<float> gate, up;  // [T, F of this rank]
  Activations gated;                        // [T, F of this rank]
  // Results of chunks that the threads share (layers/attention.cc): up to so many (row, query head) pairs of a step, times
  // the chunks of the longest context.
  int split_row_heads;
  device::cpu::ZeroVector<float> split_results;
  std::vector<int32_t> bad_layer;  // [T] first layer whose norm met a non-finite row, or -1

  Taps taps;             // of a target with draft heads
  Activations features;  // [T, inputs of fc on this rank], of a draft head
  // [kHiddenStates, D] of a draft head: what its rows left for the positions after theirs.
  device::cpu::ZeroVector<float> hidden;
};

// The step's input, the same for all members.
struct StepView {
  const BatchRow* rows = nullptr;
  int num_rows = 0;
  // rows[num_rows ..]: not computed; earlier steps stored their keys, and rows may have them as ancestors.
  int num_path_rows = 0;
  const BatchSequence* sequences = nullptr;
  int num_sequences = 0;
  const int32_t* pages = nullptr;        // page table of all sequences
  const int32_t* logits_rows = nullptr;  // rows that want logits, ascending
  int num_logits_rows = 0;
  float* logits = nullptr;  // [num_logits_rows, ld_logits] shared by all ranks
  int64_t ld_logits = 0;
  bool save_taps = false;  // of a target: rows leave their taps
  // Of a draft head: whether features are taps or hidden states; where the hidden states of the rows that want logits go,
  // in their order.
  bool fused = false;
  int hidden_out = 0;
};

// A place among (row, query head) items.
struct AttentionItem {
  int row, head;
};

struct StepContextOptions {
  const kernels::CpuKernels* kernels;
  comm::Member* member;
  comm::CpuShared shared;
  const ModelConfig* config;
  const ShardPlan* plan;
  const RankWeights* weights;
  const RopeTable* rope;
  kv::KvStore* kv;
  TeamBuffers* team;
  const Taps* taps;  // of the target of a draft head; else null
  int max_rows;
  int max_pages_per_sequence;
  // [max_rows + 1] by rows of the step: what an all-reduce takes longer; empty: nothing.
  std::vector<uint64_t> all_reduce_delay_ticks;
};

class StepContext {
 public:
  explicit StepContext(const StepContextOptions& options);

  // Each use is one kernel call: the census counts them.
  const kernels::CpuKernels& kernels() {
    ++num_kernel_calls_;
    return *o_.kernels;
  }
  uint64_t num_kernel_calls() const { return num_kernel_calls_; }
  uint64_t num_all_reduces() const { return num_all_reduces_; }
  comm::Member& member() { return *o_.member; }
  const ModelConfig& config() const { return *o_.config; }
  const RankShard& shard() const { return *shard_; }
  const RankWeights& weights() const { return *o_.weights; }
  const RopeTable& rope() const { return *o_.rope; }
  kv::KvStore& kv() { return *o_.kv; }
  TeamBuffers& team() { return *o_.team; }
  trace::Stopwatch& watch() { return watch_; }
  // Books the time since the last stamp; what of it this member waited for others, thread or rank, is the wait's.
  void Stamp(trace::Owner owner);
  const StepView& view() const { return view_; }

  // Binds the step's rows. Every member calls it with the same view.
  void Begin(const StepView& view);

  // The contiguous part of `count` items that this thread of its rank does.
  GroupRange MyPart(int count) const;
  bool SyncRank();

  // Layers call these; each returns false when the group is poisoned.
  void Embed();
  // Of a target: the residual stream is the output of `layer` now; keeps it if it is a tap.
  void SaveTap(int layer);
  // The last layer is a tap of this step: its output is wanted of all rows.
  bool TapsOutput() const;
  // Of a draft head: its rows' taps as fc reads them, with an empty residual; or its rows' hidden states as the residual.
  bool LoadTaps();
  void LoadHidden();
  // Pending sum + residual -> concat(norm of the row's embedding, norm of the residual).
  bool NormPair(const float* embedding_norm, const float* hidden_norm);
  bool Norm(const float* weight, int layer);                 // pending sum + residual -> normed rows
  bool Prepare(Activations& rows, int cols, bool quantise);  // team rows -> what the next matmul reads
  bool FinalNorm(const float* weight);                       // rows that want logits only, compact
  void OpenSum(const comm::CpuShared::Site& site, comm::CpuShared::Call* call);
  Activations& input() { return *input_; }
  int input_rows() const { return input_rows_; }
  // True if the row's path lies at slots 0, 1, 2, ...: no key of it needs gathering.
  bool is_linear(int row) const { return linear_[static_cast<size_t>(row)] != 0; }

  // The first layer whose norm met a non-finite row, or -1. Read it after a SyncWorld.
  int first_bad_layer(int row) const { return o_.team->bad_layer[static_cast<size_t>(row)]; }
  // Hash of the final norm's rows: equal on all ranks, or one of them computes wrongly.
  uint64_t hidden_hash() const { return hidden_hash_; }

  // Attention's work: the keys that rows [0, row) read, a head; and the (row, head) item at which `keys` are reached when
  // `heads` heads of one row come before the next row.
  int64_t keys_before(int row) const { return keys_before_[static_cast<size_t>(row)]; }
  AttentionItem FindItem(int64_t keys, int heads) const;

  // Scratch for attention: pointers to pages, the rows of one call and their gathered keys, a chunk in f32.
  std::vector<const void*> page_k, page_v;
  std::vector<kernels::AttentionRow> attention_rows;
  const void** TailKeys(int row_of_call) { return &tail_k_[static_cast<size_t>(row_of_call) * tail_elems_]; }
  const void** TailValues(int row_of_call) { return &tail_v_[static_cast<size_t>(row_of_call) * tail_elems_]; }
  float* attention_scratch() { return scratch_.front().lane; }

  // Planted faults (docs/errors.md); both off in normal life.
  bool fault_corrupt = false;  // flips a bit of this member's residual
  bool fault_round = false;    // rounds activations toward zero in steps of more than one row

 private:
  void EmbedRow(int row, float* out) const;
  void NormInPlace(float* x, int d, const float* weight);
  void SaveHidden(int logits_idx, const float* normed);
  float* X(int row) {
    return (private_ ? mine_x_.data() : o_.team->x.data()) + static_cast<int64_t>(row) * o_.team->ld_x;
  }
  bool ResolvePending();
  void Delay();
  GroupRange NormRows() const;
  void AddNormRow(int row, const float* weight, float* out, int layer);
  void Quantise(const float* x, int cols, Activations& to, int row);

  StepContextOptions o_;
  const RankShard* shard_;
  StepView view_;
  bool private_ = false;
  std::vector<float> mine_x_;
  std::vector<float> taps_;  // of one row, normed
  Activations mine_;
  Activations* input_ = nullptr;
  int input_rows_ = 0;
  comm::CpuShared::Call pending_;
  bool has_pending_ = false;
  uint64_t delay_ticks_ = 0;  // of this step's all-reduces
  std::vector<uint8_t> linear_;
  std::vector<int64_t> keys_before_;  // [T + 1]
  struct alignas(64) Vector {
    float lane[kLanes];
  };
  std::vector<Vector> scratch_;
  size_t tail_elems_ = 0;
  std::vector<const void*> tail_k_, tail_v_;  // [kAttentionRows, tail_elems_]
  uint64_t hidden_hash_ = 0;
  uint64_t num_kernel_calls_ = 0;
  uint64_t num_all_reduces_ = 0;
  trace::Stopwatch watch_;
};

}  // namespace lockstep::model
