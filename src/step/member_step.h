// One member's part of a step, and the memory that the members of all ranks share for it.
//
// Shapes:   see SharedLayout
// Threads:  one MemberStep a member
// Capture:  Setup is Prepare; Run allocates nothing and enters the system only where a wait parks
// Order:    docs/numerics.md; candidates of the argmax are combined in ascending order of their vocabulary rows
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "step/sampler.h"
#include "step/step_io.h"

namespace lockstep::comm {
class Member;
}
namespace lockstep::model {
struct Architecture;
struct ModelConfig;
class StepContext;
struct StepView;
}  // namespace lockstep::model
namespace lockstep::trace {
struct StepBreakdown;
}

namespace lockstep::step {

struct DraftPart;

// Places of one model inside the group's shared area, the same in every rank.
struct SharedLayout {
  // begin: where the model's part of the area begins, at a page. is_draft: a draft's, with no output of its own.
  SharedLayout(const model::ModelConfig& config, int num_members, int num_sequences, int context, int max_rows,
               size_t begin = 0, bool is_draft = false);

  // A member's best value of its part of the vocabulary.
  struct Candidate {
    float value;
    int32_t token;
    int32_t finite;
  };

  StepInput* Input(std::byte* base, int parity) const;
  StepOutput* Output(std::byte* base) const;
  int32_t* History(std::byte* base, int sequence) const;
  int32_t* Pages(std::byte* base) const;
  Candidate* Candidates(std::byte* base, int member) const;  // [kMaxLogitsRows]
  DraftPart* DraftParts(std::byte* base, int member) const;  // [kMaxLogitsRows], of a draft
  float* Logits(std::byte* base) const;                      // [kMaxLogitsRows, ld_logits]
  trace::StepBreakdown* Breakdown(std::byte* base, int member) const;
  int64_t* WeightBytes(std::byte* base, int rank) const;  // that a step reads of this rank's weights
  std::span<std::byte> AllReduceArea(std::byte* base) const;
  // What the model sees of an input's rows. sequences: room for kMaxStepSequences, as long as the view.
  model::StepView View(std::byte* base, const StepInput& in, model::BatchSequence* sequences) const;

  int pages_per_sequence, context;
  int64_t ld_logits;
  size_t all_reduce_elems;
  size_t end;  // of the model's part

 private:
  size_t input_, output_, history_, pages_, candidates_, breakdowns_, weight_bytes_, all_reduce_, logits_, draft_parts_;
  size_t all_reduce_bytes_;
};

class MemberStep {
 public:
  // num_tokens: the vocabulary that may be sampled; rows of the output layer behind it are padding.
  MemberStep(std::unique_ptr<model::StepContext> context, const SharedLayout& layout, std::byte* shared,
             int num_tokens);
  ~MemberStep();

  // False when the group is poisoned.
  bool Run(int parity);
  // Compares the digests of the step before on all ranks; contains a SyncWorld.
  bool CheckAgreement();

  model::StepContext& context() { return *context_; }
  const StepCensus& census() const { return census_; }

 private:
  void CopyAccepted(const StepInput& in);
  void PickCandidates(const StepInput& in);
  void CombineGreedy(const StepInput& in);
  void SampleRows(const StepInput& in);
  void SampleRow(const StepInput& in, const StepSequence& s, int logits_idx);
  void Digest(const StepInput& in);
  bool CheckDigests();

  std::unique_ptr<model::StepContext> context_;
  const model::Architecture* architecture_;
  comm::Member& member_;
  SharedLayout layout_;
  std::byte* shared_;
  int num_tokens_;
  Sampler sampler_;
  DraftTree tree_;
  StepCensus census_;
  uint64_t published_step_ = 0;
  bool has_published_ = false;
};

// The tree that a sequence's rows form.
void TreeOfRows(const StepInput& in, const StepSequence& s, DraftTree* tree);

}  // namespace lockstep::step
