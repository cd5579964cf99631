// The rows of one step, as the model sees them.
//
// Shapes:   rows [T]; sequences [B]
// Requires: a row's parent is an earlier row of the same sequence, or a path row; position = parent's position + 1, or
//           committed for a row without a parent; slots of one sequence are distinct within a step and lie in its pages
// Threads:  plain data, also in memory that forked ranks share: no pointers
#pragma once

#include <cstdint>

namespace lockstep::model {

struct BatchRow {
  int32_t token;
  int32_t position;  // keys of the row's path before it
  int32_t sequence;  // index into the step's sequences
  int32_t parent;    // row index, or -1: follows the last committed token
  int32_t slot;      // where its key and value go, in tokens from the start of the sequence's pages
  int32_t wants_logits;
  int32_t feature;  // of a draft head's row: the slot of the target's taps, or the index of a hidden state
};

// A sequence's kv: page_table[slot / kKvChunk] is the page of a slot.
struct BatchSequence {
  int32_t committed;       // keys in the cache before this step, at slots 0 .. committed - 1
  int32_t first_page_idx;  // where its pages begin in the step's page table
  int32_t taps_idx;        // whose taps are its own
};

}  // namespace lockstep::model
