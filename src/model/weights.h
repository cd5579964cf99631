// One rank's weights, repacked for the kernels.
//
// Shapes:   norm weights [D padded to 16], of heads [Dh]; matrices and biases as layers/linear.h
// Units:    bytes
// Errors:   what WeightSource gives; kOutOfMemory; kUnsupported for a type that the kernels do not read
// Threads:  Plan by one thread; PackShare by every thread of the rank, each its own part, so that the reader of a page
//           is the first to touch it
// Capture:  Prepare
#pragma once

#include <memory>
#include <vector>

#include "device/cpu/memory.h"
#include "model/formats/weight_source.h"
#include "model/layers/attention.h"
#include "model/layers/linear.h"
#include "model/shard.h"

namespace lockstep::model {

struct LayerWeights {
  const float* attention_norm;
  ColumnLinear q, k, v;
  ColumnBias q_bias, k_bias, v_bias;  // with ModelConfig::qkv_bias
  HeadNorms head_norms;               // with ModelConfig::qk_norm
  RowLinear attention_out;
  const float* mlp_norm;
  ColumnLinear gate, up;
  RowLinear down;
};

// What a draft head has before its one layer, whose attention_norm is that of the hidden state.
struct HeadWeights {
  const float* taps_norm = nullptr;     // [all taps], with Eagle3Config::norm_before_fc
  std::vector<const float*> tap_norms;  // [number of taps] each [Ht], with Eagle3Config::fc_norm
  RowLinear fc;                         // taps side by side -> D
  const float* fc_bias = nullptr;       // [D], if the checkpoint has one
  const float* embedding_norm = nullptr;
};

class RankWeights {
 public:
  // Allocates and lays out everything; the matrices are not filled yet.
  static Result<std::unique_ptr<RankWeights>> Plan(const WeightSource& source, const ShardPlan& plan, int rank);
  // Fills thread `thread`'s part of every matrix, and drops the source's pages as they have been read: of file and copy
  // only a few MiB a thread lie in memory at once. Pages that another thread or rank still reads come back to it. Requires: the source
  // of Plan.
  void PackShare(const WeightSource& source, int thread, int num_threads);

  TensorRef embedding;  // in the file, unpacked: rows are copied
  HeadWeights head;     // of a draft head
  std::vector<LayerWeights> layers;
  const float* output_norm = nullptr;
  ColumnLinear output;

  int64_t bytes() const { return total_bytes_; }
  // Bytes of all matrices that a step reads.
  int64_t bytes_read_per_step() const { return matrix_bytes_; }

 private:
  struct Job;
  class Planner;
  std::vector<Job> jobs_;
  device::cpu::Memory memory_;  // matrices
  device::cpu::ZeroVector<float> norms_;
  int64_t total_bytes_ = 0, matrix_bytes_ = 0;

 public:
  RankWeights();
  ~RankWeights();
};

// The groups [begin, end) of 16 outputs that a thread computes.
struct GroupRange {
  int begin, end;
};
inline GroupRange ThreadGroups(int num_groups, int thread, int num_threads) {
  return {static_cast<int>(static_cast<int64_t>(num_groups) * thread / num_threads),
          static_cast<int>(static_cast<int64_t>(num_groups) * (thread + 1) / num_threads)};
}

}  // namespace lockstep::model
