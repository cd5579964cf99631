// The n-gram drafter: what followed the last tokens when they occurred before, in this request or in a shared corpus.
//
// A suffix automaton holds the longest suffix of the text that occurred before, of whatever length, and its shorter
// suffixes. What followed each of them, how often, and how long the match was give the tokens of a tree, best first. The
// same token from several places is one node. No match, no nodes: a miss costs a look-up.
//
// Units:   tokens
// Threads: one caller an object
// Order:   nodes by probability of being reached; of equals the heavier branch, then the more recent. Integers and
//          fixed-order fp32: a function of the tokens alone.
// Cost:    O(1) amortised a token to learn; a node of a proposal at most kMatches x kMaxContinuations edges
// Source:  prompt lookup (Saxena 2023), suffix decoding (Oliaro et al. 2024); escape weight as in PPM (Cleary and Witten)
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "spec/proposer.h"
#include "spec/suffix_automaton.h"
#include "spec/suffix_corpus.h"

namespace lockstep::spec {

// One token alone is no match: most words are followed by many others, and a wrong row costs a whole row.
inline constexpr int kMinMatch = 2;
// A longer match adds no confidence (see kEscape).
inline constexpr int kMaxMatch = 32;
// Suffixes whose continuations are merged, the longest first; in ordinary text there are seldom more.
inline constexpr int kMatches = 4;
// Continuations of one suffix that are looked at, newest first.
inline constexpr int kMaxContinuations = 32;
// Depth of a continuation: even a sure copy (32 / 33 a token) is right that far one time in seven.
inline constexpr int kMaxDepth = 64;
// Weight of "something new follows", against an occurrence that weighs its match's length: a match of 2 is trusted 2 in
// 3, of 32 32 in 33. A prior, which the acceptance measured by the governor corrects.
inline constexpr float kEscape = 1.0f;
// A node less likely than this is not proposed: it would lose even where a row costs a fiftieth of a step only. A floor
// for the estimate; what a row really costs the governor knows.
inline constexpr float kMinReach = 0.02f;
// A drafter that was not run catches up from so many tokens; what lies before them is skipped.
inline constexpr int kCatchUpTokens = 64;

class NgramProposer : public Proposer {
 public:
  // Proposes ids below `vocab` only. corpus: shared, or null; it outlives the object.
  explicit NgramProposer(int vocab, const SuffixCorpus* corpus = nullptr) : vocab_(vocab), corpus_(corpus) {}

  const char* name() const override { return "ngram"; }
  void Reset(std::span<const int32_t> prompt) override;
  // Also learns what context.tokens holds beyond what was observed, and starts afresh if it holds something else.
  void Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) override;
  void Observe(std::span<const int32_t> committed) override;

  int num_tokens() const { return static_cast<int>(tokens_.size()); }

 private:
  // Suffixes of a node's path in one automaton, longest first; each with the tokens it matched.
  struct Matches {
    int num = 0;
    std::array<int32_t, kMatches> state{};
    std::array<int32_t, kMatches> length{};
  };
  static constexpr int kNumSources = 2;  // own text, corpus
  struct Node {
    int32_t token;
    int32_t parent;  // index of a node, -1 for the root
    int32_t depth;
    int32_t row;  // -1: not taken
    float reach;
    std::array<Matches, kNumSources> matches;
  };
  struct Child {
    int32_t token;
    float weight;
    int64_t recency;
  };

  void Learn(int32_t token);
  void Synchronise(std::span<const int32_t> tokens);
  const SuffixAutomaton& Automaton(int source) const { return source == 0 ? own_ : corpus_->automaton(); }
  // The suffixes of `state`'s string from `length` tokens on down.
  Matches MatchesOf(const SuffixAutomaton& automaton, int32_t state, int32_t length) const;
  void FindMatches();
  void CollectChildren(const Node& node);
  void OfferChildren(int32_t node, const DraftBudget& budget);

  int vocab_;
  const SuffixCorpus* corpus_;
  SuffixCorpus::Cursor cursor_;
  SuffixAutomaton own_;
  std::vector<int32_t> tokens_;
  std::vector<Node> nodes_;  // nodes_[0] is the root
  std::vector<int32_t> frontier_;
  std::vector<Child> children_;
};

}  // namespace lockstep::spec
