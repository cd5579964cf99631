// The drafting side of a request: which proposer, what budget, and whether a round drafts at all.
//
// Shapes:   DraftTree with its root row
// Threads:  one caller
// Capture:  no
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/request.h"
#include "spec/gate.h"
#include "spec/proposer.h"

namespace lockstep::engine {

class Drafting {
 public:
  // gate: the engine's memory of times for this drafter; it outlives the object.
  Drafting(const Request& request, int vocab, spec::Gate* gate);

  // Fills `tree` (its root row always) for the next round. max_nodes: what context, pages and the token limit leave.
  void Propose(std::span<const int32_t> tokens, int max_nodes, step::DraftTree* tree);
  void Observe(std::span<const int32_t> committed);

 private:
  void Prune(int max_nodes, step::DraftTree* tree);

  std::unique_ptr<spec::Proposer> proposer_;
  DraftShape shape_;
  spec::Gate* gate_;
  uint64_t seed_;
  float temperature_;
  step::DraftTree proposed_;
  std::vector<float> probability_;
  std::vector<int32_t> row_of_;
};

}  // namespace lockstep::engine
