// Texts of earlier requests, in which the n-gram drafter may find what comes next; bounded in memory.
//
// When it would outgrow its bytes, the older half is forgotten. A reader keeps a cursor, the longest suffix of its own
// text that occurs here, and moves it token by token.
//
// Units:   tokens; bytes
// Threads: one caller an object; shared by the requests of an engine
// Cost:    Add and Advance O(1) amortised a token
// Source:  matching statistics over a suffix automaton
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "spec/suffix_automaton.h"

namespace lockstep::spec {

class SuffixCorpus {
 public:
  struct Cursor {
    uint64_t generation = 0;
    int32_t state = SuffixAutomaton::kRoot;
    int32_t length = 0;  // of the suffix that is matched
  };

  explicit SuffixCorpus(int64_t max_bytes) : max_bytes_(max_bytes) {}

  void Add(std::span<const int32_t> text);
  // The reader's text grew by `token`.
  void Advance(Cursor* cursor, int32_t token) const;
  // False if texts were forgotten since the cursor moved last: its reader starts it anew.
  bool Valid(const Cursor& cursor) const { return cursor.generation == generation_; }
  Cursor Start() const { return {generation_, SuffixAutomaton::kRoot, 0}; }
  // Texts may have been added since: brings the cursor's state to where its suffix is now.
  void Settle(Cursor* cursor) const;

  const SuffixAutomaton& automaton() const { return automaton_; }
  int64_t num_tokens() const { return automaton_.num_tokens(); }

 private:
  void Forget();

  int64_t max_bytes_;
  uint64_t generation_ = 1;
  std::deque<std::vector<int32_t>> texts_;
  int64_t text_bytes_ = 0;
  SuffixAutomaton automaton_;
};

}  // namespace lockstep::spec
