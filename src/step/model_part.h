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
#include "kv/kv_store.h"
#include "model/rope_table.h"
#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"
#include "step/all_reduce_delay.h"
#include "step/member_step.h"

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

struct ModelPart {
  // What the threads of one rank share. In process mode each process fills its own only.
  struct RankState {
    Status status;
    std::unique_ptr<model::RankWeights> weights;
    std::unique_ptr<model::TeamBuffers> team;
    kv::KvStore kv;
  };

  // begin: where its part of the shared area begins.
  static Result<std::unique_ptr<ModelPart>> Plan(std::shared_ptr<const model::WeightSource> source,
                                                 const ModelPartOptions& options, size_t begin, bool is_draft);
  // This member's share: weights, cache, buffers, rotary table. A vote of all members must follow before a step.
  Status Load(comm::Member& member, std::byte* shared);
  // target: of a draft, else null.
  Result<std::unique_ptr<model::StepContext>> MakeContext(comm::Member& member, std::byte* shared,
                                                          const kernels::CpuKernels& kernels, ModelPart* target);

  const model::ModelConfig& config() const { return source->config(); }

  ModelPart(std::shared_ptr<const model::WeightSource> s, const ModelPartOptions& o, model::ShardPlan p,
            const SharedLayout& l);

  std::shared_ptr<const model::WeightSource> source;
  ModelPartOptions options;
  model::ShardPlan plan;
  SharedLayout layout;
  model::RopeTable rope;
  std::vector<RankState> ranks;
  uint64_t num_steps = 0;

 private:
  Status BuildRank(int rank);
};

}  // namespace lockstep::step
