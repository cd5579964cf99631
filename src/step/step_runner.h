// Runs steps on all ranks: the same program for one row, for a verify of many and for a chunk of a prompt.
//
// Shapes:   StepInput -> StepOutput (step_io.h)
// Errors:   Create: what the model file gives; kInvalidArgument for a cut that cannot be; kOutOfMemory; a failing rank
//           makes all fail with its reason. Run: kPeerLost, kTimeout (the group is dead afterwards)
// Threads:  the caller's thread is rank 0, thread 0; all calls belong to it
// Capture:  Create is Prepare: it may allocate, load, pin and fail. Run does none of these.
// Order:    docs/numerics.md
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "comm/rank_mode.h"
#include "step/all_reduce_delay.h"
#include "step/draft_step.h"
#include "step/step_io.h"
#include "trace/step_breakdown.h"

namespace lockstep::model {
class WeightSource;
struct ModelConfig;
}  // namespace lockstep::model

namespace lockstep::step {

// A draft head or draft model that runs on the same ranks.
struct DraftOptions {
  std::shared_ptr<const model::WeightSource> source;
  int context = 0;     // positions that its cache may hold
  int max_rows = 256;  // of its steps
  DType kv_dtype = DType::kF16;
};

struct StepOptions {
  int tp = 1;
  int threads = 1;  // a rank
  comm::RankMode rank_mode = comm::RankMode::kThread;
  std::vector<std::vector<int>> cpus;  // [tp][threads] to pin to; empty: not pinned
  bool oversubscribed = false;         // more threads than cores: waits park at once
  int context = 0;                     // tokens a sequence may hold
  int num_sequences = 1;               // sequences that may hold kv at once
  int max_rows = 512;  // rows of a step: the prefill chunk, at least kMaxLogitsRows' worth of draft rows
  DType kv_dtype = DType::kF16;
  int num_tokens = 0;   // ids that may be sampled; 0: all rows of the output layer. Rows behind are padding
  std::string cpu_isa;  // empty: the widest
  double timeout_secs = 30;
  // Of benches: what each all-reduce takes longer, of the target's steps and of the drafts', which would wait for the same
  // links. Changes no number.
  std::vector<AllReduceDelay> all_reduce_delays;
  std::vector<DraftOptions> drafts;  // at most one head, since the target leaves taps for one
};

class StepRunner {
 public:
  static Result<std::unique_ptr<StepRunner>> Create(std::shared_ptr<const model::WeightSource> source,
                                                    const StepOptions& options);
  ~StepRunner();

  const model::ModelConfig& config() const;
  const StepOptions& options() const;
  const char* isa_name() const;

  // The input of the next step, with num_rows = 0; valid until Run.
  StepInput& input();
  // [context] tokens of a sequence: the prompt, then the output. The caller appends what it commits.
  int32_t* history(int sequence);
  // [pages] page table of a sequence, ceil(context / kKvChunk) entries.
  int32_t* page_table(int sequence);
  int num_pages() const;
  int pages_per_sequence() const;
  uint64_t num_steps() const;

  Status Run();
  const StepOutput& output() const;
  // The logits of row i of the step's logits rows, [V]; valid until the next Run. For tests and log-probabilities.
  std::span<const float> logits(int logits_idx) const;

  // Drafts, by their number in StepOptions::drafts. Their steps and the target's come in any order.
  int num_drafts() const;
  const model::ModelConfig& draft_config(int draft) const;
  int draft_context(int draft) const;
  int draft_pages_per_sequence(int draft) const;
  // The input of a draft's next step, empty; valid until RunDraft. Pages of a draft belong to its sequences for good.
  StepInput& draft_input(int draft);
  Status RunDraft(int draft);
  // The likeliest tokens after row i of the step's logits rows, at most kDraftTopK, best first; returns how many, 0 if
  // the row's numbers are not finite. sampled: its request samples. Valid until the next RunDraft.
  int Candidates(int draft, int logits_idx, bool sampled, std::span<DraftCandidate> out) const;
  // The target's taps at one slot, on a rank of this process; for tests.
  float* taps(int rank, int sequence, int slot);
  // [draft vocabulary] For tests and probes.
  std::span<const float> draft_logits(int draft, int logits_idx) const;

  // Compares the last step's digests on all ranks; Run does it one step late. Call when a request ends.
  Status CheckAgreement();

  trace::Stopwatch& watch();                           // the leader's
  std::vector<trace::StepBreakdown> TakeBreakdowns();  // by member; then counting starts anew
  StepCensus census() const;                           // of the last step, rank 0
  // Of a step of `rows` rows of one sequence behind `context` tokens, of which `logits_rows` want logits.
  StepTraffic Traffic(int context, int rows, int logits_rows) const;

  // Ends all ranks. The first fault, if any.
  Status Stop();

 private:
  struct Impl;
  explicit StepRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Appends rows to an input. They keep its counts, so several sequences can share a step.
//
// A chunk of a prompt: tokens at positions first_position .. ; the last row wants logits if `sample_last`.
// Requires: room for the rows; pages for the slots.
void AddPrefill(StepInput& input, int sequence, std::span<const int32_t> tokens, int first_position, bool sample_last,
                int page_stride);
// A decode or verify step: the tree's root is the last committed token, at position `committed`; every row wants
// logits.
void AddTree(StepInput& input, int sequence, const DraftTree& tree, int committed, int page_stride);

}  // namespace lockstep::step
