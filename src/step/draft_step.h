// One member's part of a draft's step: the forward of a draft head or draft model, and the best tokens of each row.
//
// A draft runs on the ranks and threads of its target, between the target's steps. Its rows are cut over ranks like the
// target's; its logits go no further than to a few candidates a row, which the leader reads. Nothing of it reaches the
// text (accept_walk.h), so no digest covers it.
//
// Shapes:   StepInput -> candidates [L, kDraftTopK] (step_io.h)
// Threads:  one object a member
// Capture:  the constructor is Prepare; Run allocates nothing
// Order:    a row's candidates: larger value first, then smaller id; the same tokens for every number of ranks and
//          threads, their probabilities but for the last bits
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "step/member_step.h"
#include "step/step_io.h"

namespace lockstep::step {

inline constexpr int kDraftTopK = 8;

// A token that may come next.
struct DraftCandidate {
  int32_t token;      // of the target's vocabulary
  float probability;  // that it is the one, by the draft's account
};

// A member's best of its part of the vocabulary, at one row.
struct DraftPart {
  // Of all tokens of the part: the largest logit, and for greedy requests the sum of exp(logit - largest).
  float largest;
  float sum_exp;
  int32_t num;
  struct Best {
    float value;  // logit; where the request samples logit x (1 / temperature) + noise
    int32_t token;
  } best[kDraftTopK];  // largest value first, of equals the smaller id
};

class DraftStep {
 public:
  // draft_to_target: of a head, or empty; outlives the object. num_tokens: ids of the target that may be sampled.
  DraftStep(std::unique_ptr<model::StepContext> context, const SharedLayout& layout, std::byte* shared,
            std::span<const int32_t> draft_to_target, int num_tokens);
  ~DraftStep();

  // False when the group is poisoned.
  bool Run(int parity);

  model::StepContext& context() { return *context_; }

 private:
  // This member's part of the draft vocabulary.
  struct Slice {
    int first, count;
  };
  bool PickCandidates(const StepInput& in);
  void FindLargest(int logits_idx, const Slice& slice, DraftPart* part);
  void PickGreedy(int logits_idx, const Slice& slice, DraftPart* part);
  void PickSampled(const StepInput& in, const StepSequence& s, int logits_idx, const Slice& slice, float largest,
                   DraftPart* part);
  int32_t TargetOf(int draft_id) const {
    return draft_to_target_.empty() ? draft_id : draft_to_target_[static_cast<size_t>(draft_id)];
  }

  std::unique_ptr<model::StepContext> context_;
  const model::Architecture& architecture_;
  comm::Member& member_;
  SharedLayout layout_;
  std::byte* shared_;
  std::span<const int32_t> draft_to_target_;
  int num_tokens_;
  std::vector<float> work_;  // [this member's part of the vocabulary]
};

// Brings the members' parts of one row together. Returns how many candidates there are; 0 if the row is not finite.
int MergeParts(std::span<const DraftPart* const> parts, bool sampled, std::span<DraftCandidate> out);

}  // namespace lockstep::step
