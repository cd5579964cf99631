// The two linear layers of tensor parallelism. Together with the shard plan they are the only place that knows of
// ranks.
//
// Shapes:   activations [T, K of this rank]; outputs [T, ld], columns of this rank padded to a multiple of 16
// Threads:  the threads of a rank share the groups of 16 outputs: each Run computes its thread's part
// Capture:  Run yes
// Order:    docs/numerics.md 2 and 3
#pragma once

#include "comm/cpu_shared.h"
#include "kernels/cpu/kernels.h"

namespace lockstep::model {

class StepContext;

// Splits outputs over ranks: every rank holds whole rows of K. One chain over K.
struct ColumnLinear {
  kernels::PackedMatrix weight;
  kernels::LeafPlan plan;

  void Run(StepContext& c, float* out, int64_t ld_out) const;
};

// The bias of a ColumnLinear, cut as its outputs: after Run, one addition an output. Each thread adds to the columns that
// its own Run has just written.
struct ColumnBias {
  const float* values = nullptr;  // [columns of this rank, padded to 16 with zeros]; null: none, and Run does nothing
  int num_groups = 0;             // of 16 columns

  void Run(StepContext& c, float* out, int64_t ld_out) const;
};

// Splits K over ranks at the leaves of a canonical tree: each rank leaves one to three partial sums in the shared
// workspace. The sum is pending until the next norm, which adds it to the residual.
struct RowLinear {
  kernels::PackedMatrix weight;
  kernels::LeafPlan plan;
  comm::CpuShared::Site site;

  void Run(StepContext& c) const;
};

}  // namespace lockstep::model
