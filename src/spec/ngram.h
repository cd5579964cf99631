// The n-gram drafter: what followed the last tokens when they occurred before in this request.
//
// An index of the request's own tokens: for each of a few lengths n, a hash chain links the places where the same n
// tokens ended. A proposal walks the chain of the longest n that has one, most recent place first, checks each place
// token by token (a hash alone proves nothing), and measures how far the match reaches back. The continuations of the
// best places are merged into a trie whose nodes compete for the budget. No match, no nodes: a miss costs a hash
// look-up.
//
// Units:   tokens
// Threads: one caller an object
// Order:   longer match first, then the more recent; nodes by probability of being reached, then in that order.
//          Integers and fixed-order fp32, so that all ranks propose the same tree.
// Cost:    O(1) amortised a token to learn; a proposal at most kMaxPlaces matches of kMaxMatch
// Source:  prompt lookup (Saxena 2023), suffix decoding; escape weight as in PPM (Cleary and Witten 1984)
#pragma once

#include <cstdint>
#include <vector>

#include "spec/proposer.h"

namespace lockstep::spec {

// Lengths that are indexed, longest first. One token is too little: most words are followed by many others, and a wrong
// row costs a whole row. 8 finds the right one of many places in repetitive text, where the chain of 2 is long.
inline constexpr int kNgramLengths[] = {8, 4, 2};
inline constexpr int kNumNgramLengths = 3;
// A match is measured back to this many tokens; beyond, a longer one adds no confidence (see kEscape) and only cost.
inline constexpr int kMaxMatch = 32;
// Places looked at, over all lengths: bounds a proposal in text that repeats one word for ever.
inline constexpr int kMaxPlaces = 64;
// Places whose continuations are merged: a tree seldom has more branches that are worth a row.
inline constexpr int kMaxBranches = 16;
// Depth of a continuation: even a sure copy (32 / 33 a token) is right that far one time in seven.
inline constexpr int kMaxDepth = 64;
// Weight of "something new follows", against a match that weighs its length: a match of 2 is trusted 2 in 3, of 32 32
// in 33. A prior, which the acceptance measured by the caller corrects.
inline constexpr float kEscape = 1.0f;
// A node less likely than this is not proposed: it would lose even where a row costs a fiftieth of a step only. A floor
// for the estimate; what a row really costs is the caller's to know.
inline constexpr float kMinReach = 0.02f;

class NgramProposer : public Proposer {
 public:
  // Proposes ids below `vocab` only.
  explicit NgramProposer(int vocab) : vocab_(vocab) {}

  const char* name() const override { return "ngram"; }
  void Reset(std::span<const int32_t> prompt) override;
  // Also learns what context.tokens holds beyond what was observed, and starts afresh if it holds something else.
  void Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) override;
  void Observe(std::span<const int32_t> committed) override;

  int num_tokens() const { return static_cast<int>(tokens_.size()); }

 private:
  // Hash chains of one n: the table gives the most recent end of an n-gram, `previous` the one before it.
  struct Chains {
    struct Slot {
      uint64_t hash = 0;
      int32_t end = -1;  // -1: empty
    };
    std::vector<Slot> slots;        // open addressing; a power of two, at most half full
    std::vector<int32_t> previous;  // [num_tokens] by end of the n-gram, -1: none
    int num_used = 0;

    void Clear();
    void Add(uint64_t hash, int32_t end);
    int32_t Find(uint64_t hash) const;
    Slot* Probe(uint64_t hash);
    void Grow();
  };
  struct Place {
    int32_t end;  // index of the last token of the match
    int32_t match;
  };
  struct TrieNode {
    int32_t token;
    int32_t parent;
    int32_t first_child;
    int32_t next_sibling;
    float weight;
    float reach;
  };

  void Learn(int32_t token);
  void Synchronise(std::span<const int32_t> tokens);
  uint64_t HashEndingAt(int end, int n) const;
  // Tokens that the text up to `end` and the whole text have in common at their ends, at most kMaxMatch.
  int MatchLength(int end) const;
  void FindPlaces();
  void AddContinuation(const Place& place, int max_depth);
  void Select(const DraftBudget& budget, step::DraftTree* out, std::vector<float>* probability);

  int vocab_;
  std::vector<int32_t> tokens_;
  Chains chains_[kNumNgramLengths];
  std::vector<Place> places_;
  std::vector<TrieNode> trie_;  // trie_[0] is the root
  std::vector<int32_t> frontier_;
  std::vector<int32_t> row_of_;
};

}  // namespace lockstep::spec
