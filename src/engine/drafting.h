// The drafting side of a request: its drafters, and which rows a round has.
//
// With the automatic shape the governor decides, round by round; a drafter that it does not run learns nothing meanwhile
// and catches up from the last tokens. A fixed shape drafts every round, with governor and ledger off.
//
// Shapes:   DraftTree with its root row
// Requires: by turns Propose, Finish
// Threads:  one caller
// Capture:  no
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/drafts.h"
#include "engine/request.h"
#include "spec/clock.h"
#include "spec/governor.h"
#include "spec/proposer.h"
#include "spec/suffix_corpus.h"

namespace lockstep::step {
class StepRunner;
}

namespace lockstep::engine {

class Drafting {
 public:
  // Of the engine; all outlive the object.
  struct Means {
    int vocab = 0;
    spec::Governor* governor = nullptr;    // its memory for this kind of request, with DraftersOf in it
    spec::SuffixCorpus* corpus = nullptr;  // what earlier requests left for n-grams, or null
    const LoadedDrafts* drafts = nullptr;
    step::StepRunner* runner = nullptr;
    const spec::Clock* clock = nullptr;
    int sequence = 0;
  };
  Drafting(const Request& request, const Means& means);
  ~Drafting();

  // Fills `tree` (its root row always) for the next round. max_nodes: what context, pages and the token limit leave.
  // moves: slots that the next step will move.
  void Propose(std::span<const int32_t> tokens, int max_nodes, std::span<const step::KvMove> moves,
               step::DraftTree* tree);
  // The round emitted num_tokens; path: the rows of its tree that were accepted, the root not included.
  void Finish(int num_tokens, std::span<const int32_t> path);

  bool governed() const { return governed_; }
  // Whose rows the last proposal has. Requires: it has some.
  Drafter drafter() const { return sources_[static_cast<size_t>(chosen_)].drafter; }

 private:
  struct Source {
    std::unique_ptr<spec::Proposer> proposer;
    Drafter drafter;
    bool ready = false;  // has read the prompt; done when it is first run, at its own cost
  };
  void Run(Source& source, std::span<const int32_t> tokens, const spec::DraftBudget& budget, step::DraftTree* tree);
  std::unique_ptr<spec::Proposer> MakeProposer(Drafter drafter, const Request& request, const Means& means) const;

  std::vector<Source> sources_;
  int chosen_ = 0;  // of sources_, in this round
  DraftShape shape_;
  bool governed_;
  spec::Governor* governor_;
  int64_t id_;
  size_t prompt_tokens_;
  uint64_t seed_;
  float temperature_;
  std::span<const step::KvMove> moves_;  // of the round
  std::vector<step::DraftTree> offers_;  // by source, of this round
  std::vector<float> probability_;
  std::vector<int32_t> row_of_;  // of the verified tree, by row of the offered one
  std::vector<int32_t> kept_;    // the other way round
  std::vector<int32_t> accepted_;
};

}  // namespace lockstep::engine
