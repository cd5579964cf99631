// One model on the ranks of a runner: the target, or a draft. How it is cut, what its ranks hold, where its part of the
// shared area lies.
//
// Errors:  Plan: kInvalidArgument for a cut that cannot be, kUnsupported for a head size; Load: what the weights give,
//          kOutOfMemory
// Threads: Plan by one thread, before ranks start; Load and MakeContext by every member
// Capture: Prepare
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "comm/rank_mode.h"
#include "step/all_reduce_delay.h"
#include "step/member_step.h"

namespace lockstep::comm {
class Member;
}
namespace lockstep::kernels {
struct CpuKernels;
}
namespace lockstep::model {
struct ModelConfig;
struct ShardPlan;
class StepContext;
struct Taps;
class WeightSource;
}  // namespace lockstep::model

namespace lockstep::step {

// Set-up allocates; a member that runs out of memory must still vote, or the others would wait for it.
template <typename F>
Status CatchBadAlloc(F f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return OutOfMemory("no memory for the buffers of a step");
  }
}

struct ModelPartOptions {
  int tp, threads;
  comm::RankMode rank_mode;
  int num_sequences;
  int context;   // tokens a sequence may hold
  int max_rows;  // of a step
  DType kv_dtype;
  std::vector<int> tap_layers;  // that the target leaves for a head
  std::vector<AllReduceDelay> all_reduce_delays;
};

class ModelPart {
 public:
  // begin: where its part of the shared area begins.
  static Result<std::unique_ptr<ModelPart>> Plan(std::shared_ptr<const model::WeightSource> source,
                                                 const ModelPartOptions& options, size_t begin, bool is_draft);
  // This member's share: weights, cache, buffers, rotary table. A vote of all members must follow before a step.
  Status Load(comm::Member& member, std::byte* shared);
  // target: of a draft, else null.
  Result<std::unique_ptr<model::StepContext>> MakeContext(comm::Member& member, std::byte* shared,
                                                          const kernels::CpuKernels& kernels, ModelPart* target);

  ModelPart(std::shared_ptr<const model::WeightSource> source, const ModelPartOptions& options,
            const model::ShardPlan& plan, const SharedLayout& layout);
  ~ModelPart();

  const model::ModelConfig& config() const;
  const ModelPartOptions& options() const { return options_; }
  const SharedLayout& layout() const { return layout_; }
  // Of all ranks: two may hold the same kv head.
  int num_kv_heads() const;
  // Bytes of one head's key, or value, in the cache; of a rank of this process.
  int64_t kv_row_bytes() const;
  model::Taps& taps(int rank);

  uint64_t num_steps = 0;

 private:
  struct State;  // what ranks hold
  Status BuildRank(int rank);

  std::shared_ptr<const model::WeightSource> source_;
  ModelPartOptions options_;
  SharedLayout layout_;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::step
