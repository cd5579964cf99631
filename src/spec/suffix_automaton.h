// A suffix automaton that grows with a text: every string of tokens that occurred is a path from its start, and each
// state knows how often its strings occurred and where last.
//
// State: all strings with the same set of end positions; the longest has length(s), and link(s) holds the longest of
// their suffixes that occurred elsewhere too. So last(), the whole text, links to the longest suffix of the text that
// occurred before: what an n-gram drafter looks for, of any n.
//
// Units:   tokens; positions count appended tokens
// Threads: one caller an object
// Order:   a function of what was appended, integers only
// Cost:    Append O(1) amortised and about 100 bytes a token: at most two states and three edges
// Source:  Blumer et al. 1985; several texts in one automaton as in generalised suffix automata
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::spec {

// Counts go up to so many suffixes of the text at each token; the shortest suffixes of a repetitive text count too low.
// Exact counts would cost a walk as long as the text.
inline constexpr int kMaxCountedSuffixes = 16;

class SuffixAutomaton {
 public:
  static constexpr int32_t kRoot = 0;  // the empty string
  struct Edge {
    int32_t from, token, to;
    int32_t next;  // another edge of `from`, older; -1: none
  };

  SuffixAutomaton() { Clear(); }
  void Clear();
  void Append(int32_t token);
  // What is appended next does not continue what was: another text, or a gap in this one.
  void Break() { last_ = kRoot; }

  int32_t last() const { return last_; }
  int32_t link(int32_t s) const { return states_[static_cast<size_t>(s)].link; }  // -1 for the root
  int32_t length(int32_t s) const { return states_[static_cast<size_t>(s)].length; }
  int32_t count(int32_t s) const { return states_[static_cast<size_t>(s)].count; }
  int32_t last_end(int32_t s) const { return states_[static_cast<size_t>(s)].last_end; }
  int32_t Next(int32_t s, int32_t token) const;  // -1: that string never occurred
  // The newest edge of a state, -1: none; then edge(e).next.
  int32_t first_edge(int32_t s) const { return states_[static_cast<size_t>(s)].first_edge; }
  const Edge& edge(int32_t e) const { return edges_[static_cast<size_t>(e)]; }

  int32_t num_tokens() const { return num_tokens_; }
  int64_t bytes() const;

 private:
  struct State {
    int32_t length = 0, link = -1, first_edge = -1;
    int32_t count = 0, last_end = -1;
  };
  int32_t FindEdge(int32_t from, int32_t token) const;
  void AddEdge(int32_t from, int32_t token, int32_t to);
  void Place(int32_t edge);
  int32_t Clone(int32_t s, int32_t length);
  // Sends the edges `token` of p and its links that lead to `from` to `to`.
  void Redirect(int32_t p, int32_t token, int32_t from, int32_t to);

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> slots_;  // open addressing by (from, token): an edge, -1: empty; at most half full
  int32_t last_ = kRoot;
  int32_t num_tokens_ = 0;
};

}  // namespace lockstep::spec
