// What goes into a step and what comes out: plain data in memory that all ranks share.
//
// Shapes:   rows [T]; logits_rows [L]; sequences [B]; see each field
// Units:    tokens; slots and positions in tokens from the start of a sequence
// Requires: rows of one sequence are contiguous, its root first; what batch.h requires
// Threads:  the leader writes an input before it posts the step; all members read it. Two inputs alternate: while the
//           leader fills one, a slow rank may still read the other, and it has left that one before its turn comes
//           again, since a step holds at least one SyncWorld of all members.
#pragma once

#include <cstdint>

#include "model/batch.h"
#include "step/accept_walk.h"
#include "step/sampling_params.h"

namespace lockstep::step {

inline constexpr int kMaxStepRows = 2048;   // the widest chunk of a prompt
inline constexpr int kMaxLogitsRows = 256;  // the widest verify step
inline constexpr int kMaxStepSequences = 64;

// One sequence's part of a step.
struct StepSequence {
  model::BatchSequence kv;
  int32_t slot;  // which of the runner's sequences: its history and page table
  int32_t first_row;
  int32_t num_rows;
  int32_t first_logits_idx;  // index into logits_rows of its first row that wants logits
  int32_t num_logits_rows;
  int32_t is_tree;            // rows are a draft tree (a plain decode row is a tree of one); else a prefill chunk
  int32_t num_prompt_tokens;  // of the history: the prompt, then the committed output
  int32_t num_output_tokens;
  SamplingSpec sampling;
  int32_t noise_offset;  // of a draft: what a row predicts stands at row.position + noise_offset in the target's text
};

// Copies the kv of one slot of a sequence to another, before the step's own rows are stored: the accepted path of the
// round before, where it was not a chain.
struct KvCopy {
  int32_t sequence;
  int32_t from_slot;
  int32_t to_slot;
};

struct StepInput {
  uint64_t step;
  int32_t num_rows;
  int32_t num_sequences;
  int32_t num_logits_rows;
  int32_t num_copies;
  int32_t save_taps;  // of a target with draft heads: rows leave their taps
  // Of a draft's step (StepRunner::RunDraft); else 0.
  int32_t num_path_rows;  // rows[num_rows ..] that are ancestors only (model/batch.h)
  int32_t fused;          // a head's features are taps, else hidden states
  int32_t hidden_out;     // where the hidden states of the rows that want logits go, in their order
  model::BatchRow rows[kMaxStepRows];
  StepSequence sequences[kMaxStepSequences];
  int32_t logits_rows[kMaxLogitsRows];
  KvCopy copies[kMaxLogitsRows];
};

struct StepOutput {
  int32_t tokens[kMaxLogitsRows];  // sampled at each logits row; -1: the row is not finite
  int32_t
      bad_layer[kMaxLogitsRows];  // where it stopped being finite: a layer, or num_layers for the final norm and logits
};

// Counts of one step on one member, for the census of promise P3.
struct StepCensus {
  uint64_t kernels = 0;
  uint64_t all_reduces = 0;  // the exchange of logits included
};

// Bytes that the ranks together move through memory in a step, if each is moved once for all rows. What a step writes
// and reads again at once (activations, partial sums) lives in caches and does not count.
struct StepTraffic {
  int64_t weights = 0;  // every matrix
  int64_t kv = 0;       // keys and values read: all tokens before the step, and its rows
  int64_t rows = 0;     // written: the rows' keys and values, and logits where they are wanted
  int64_t total() const { return weights + kv + rows; }
};

}  // namespace lockstep::step
