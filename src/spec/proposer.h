// The interface of all drafters: propose a tree of tokens that may come next.
//
// A proposal decides how many tokens a round emits, never which (step/accept_walk.h). A drafter may therefore be wrong,
// stale or random; it must only stay inside its budget and the vocabulary.
//
// Shapes:   a tree of at most max_nodes nodes, or a chain; probability [1 + num_nodes] by row
// Units:    tokens
// Requires: of one request, in order: Reset, then Propose (may be left out) and Observe by turns
// Threads:  one caller an object; one object a request
// Capture:  no (drafters that run a model have a ladder of their own)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "step/accept_walk.h"

namespace lockstep::spec {

enum class ShapeLimit {
  kChain,  // each node the child of the one before
  kTree,   // any
};

struct DraftBudget {
  int max_nodes = 0;  // at most step::kMaxTreeNodes; 0: propose nothing
  ShapeLimit shape = ShapeLimit::kTree;
  float min_reach = 0;  // a node less likely to be reached is not worth its row
  // What a second brings otherwise: a drafter stops where its own time would bring less. 0: the shape is fixed, fill it.
  float tokens_per_second = 0;
};

struct ProposeContext {
  // Prompt and committed output. The last one is the root row's token, which the target has not read yet.
  std::span<const int32_t> tokens;
  int64_t position = 0;  // of the last of `tokens`; a node at depth d stands at position + d
  DraftBudget budget;
  // For drafters that sample: the same noise on their own logits as the target's (step/noise.h).
  uint64_t seed = 0;
  float temperature = 0;
  // For drafters that read the target's features: what the round before left to be moved by the target's next step, as
  // slots. A slot that is not among the targets is its position.
  std::span<const step::KvMove> pending_moves;
};

class Proposer {
 public:
  virtual ~Proposer() = default;

  virtual const char* name() const = 0;

  // Forgets everything, then learns the prompt (or prompt and output, when a request is replayed).
  virtual void Reset(std::span<const int32_t> prompt) = 0;

  // Fills `out`, its root row included, and the estimated chance of each row to be reached: probability[0] = 1, a
  // child's at most its parent's. Nothing to say: no nodes. Requires: tokens not empty; max_nodes within its range.
  virtual void Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) = 0;

  // Whether the last Propose did what a request needs once (reading the text for the first time), so that its time says
  // nothing of the next one's.
  virtual bool opened() const { return false; }

  // The tokens that a round or a plain step committed, in order.
  virtual void Observe(std::span<const int32_t> committed) = 0;
};

}  // namespace lockstep::spec
