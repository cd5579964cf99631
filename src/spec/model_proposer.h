// Drafters that run a model on the target's ranks: an EAGLE-3 head over the target's features, or a smaller model.
//
// A proposal first catches up: it reads what was committed since the last one (a head: with the target's own features, so
// that its cache holds nothing of its guesses), and finds the likeliest next tokens. Then, level by level, it runs the
// most promising nodes, all of a level in one step, for as long as a further level is likely to bring more than it
// costs. The tree is the best nodes by their chance of being reached; a chain is the special case of one child each.
//
// Where a request samples, the candidates carry the target's own noise, so that draft and target tend to agree.
//
// Positions of the draft count from the start of a window of the text: it opens at the first proposal, and again where
// the drafter was not run for longer than it catches up, or where the draft's context is full. Rotary positions are
// relative, so a window costs what lies before it and nothing else.
//
// Units:   tokens; seconds
// Errors:  a failing step proposes nothing; the target's next step reports the lost rank
// Threads: one caller an object; it runs steps, so no other step may be in flight
// Capture: the steps are the draft's own
// Order:   proposals of a fixed shape are a function of the tokens and the window: the same tokens over ranks and threads,
//          their probabilities but for the last bits
// Source:  EAGLE-2 (Li et al. 2024, arXiv 2406.16858) for the tree; EAGLE-3 (arXiv 2503.01840) for the head
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "spec/clock.h"
#include "spec/proposer.h"
#include "step/step_runner.h"

namespace lockstep::spec {

// Tokens of the text that a window opens with, at most: reading them costs one to two plain steps of a small model, which
// the ledger must have. More would be accepted more often where the prompt is long (256: 3.45 against 3.28 on code), but
// a drafter that uses up the ledger before its first row is never tried again. A head's target keeps the taps of so many
// and of a tree.
inline constexpr int kDraftWindow = 128;
// A drafter that was not run opens a new window with so many rather than read more.
inline constexpr int kDraftCatchUp = 64;
// Of a tree; a chain is as deep as it was asked for.
inline constexpr int kMaxDraftDepth = 12;
// Nodes that are run in one step: more are seldom worth their rows, and rows cost a head little up to here.
inline constexpr int kLevelRows = 8;

class ModelProposer : public Proposer {
 public:
  // draft: of the runner. sequence: of its target and draft. clock: for what a level costs.
  ModelProposer(step::StepRunner* runner, int draft, int sequence, const Clock* clock);

  const char* name() const override { return is_head_ ? "eagle3" : "draft"; }
  void Reset(std::span<const int32_t> prompt) override;
  void Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) override;
  bool opened() const override { return opened_; }
  void Observe(std::span<const int32_t> committed) override;

 private:
  struct Node {
    int32_t token;
    int32_t parent;  // index of a node, -1 for the root
    int32_t depth;
    float reach;
    int32_t state;  // hidden state that its row left; -1: not run
    int32_t slot;   // of its key, once run
  };

  bool CatchUp(const ProposeContext& context);
  bool RunLevel(const ProposeContext& context);
  void AddChildren(int parent, int logits_idx, const ProposeContext& context);
  void SortByReach();
  void PickFrontier(const DraftBudget& budget);
  void FitFrontier(const ProposeContext& context);
  bool LevelPays(const DraftBudget& budget) const;
  void Emit(const DraftBudget& budget, step::DraftTree* out, std::vector<float>* probability);
  step::StepSequence& AddSequence(step::StepInput& in, int committed, const ProposeContext& context) const;
  // Where the target keeps the taps of a position.
  static int TapSlot(const ProposeContext& context, int64_t position);
  int64_t end(const ProposeContext& context) const;

  step::StepRunner* runner_;
  int draft_, sequence_;
  const Clock* clock_;
  bool is_head_;
  int32_t vocab_;              // ids that the draft can read
  int context_;                // positions that the draft's cache may hold
  std::vector<int32_t> read_;  // the text up to here was seen, to notice another text
  int64_t window_ = 0;         // position of the text where the draft's position 0 is
  int64_t next_ = 0;           // first position that the draft has not read
  bool fresh_ = true;          // nothing read yet
  bool opened_ = false;        // by the last proposal
  std::vector<Node> nodes_;
  std::vector<int32_t> order_;     // nodes by reach
  std::vector<int32_t> frontier_;  // nodes to run
  std::vector<int32_t> ran_;       // nodes that were run, in their order
  std::vector<int32_t> row_of_;    // rows of a tree or step, by node
  int num_states_ = 0;
  double level_secs_ = 0;     // what a level takes, a fading mean
  double child_reach_ = 0.7;  // reach of a run node's best child over its own, a fading mean
};

}  // namespace lockstep::spec
