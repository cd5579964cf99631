#include "spec/suffix_automaton.h"

namespace lockstep::spec {
namespace {

uint64_t Hash(int32_t from, int32_t token) {
  uint64_t x = (uint64_t{static_cast<uint32_t>(from)} << 32 | static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15ull;
  return x ^ (x >> 29);
}

constexpr size_t kFirstSlots = 64;

}  // namespace

void SuffixAutomaton::Clear() {
  states_.assign(1, State{});
  edges_.clear();
  slots_.assign(kFirstSlots, -1);
  last_ = kRoot;
  num_tokens_ = 0;
}

int32_t SuffixAutomaton::FindEdge(int32_t from, int32_t token) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = Hash(from, token) & mask; slots_[at] >= 0; at = (at + 1) & mask) {
    const Edge& e = edges_[static_cast<size_t>(slots_[at])];
    if (e.from == from && e.token == token) return slots_[at];
  }
  return -1;
}

int32_t SuffixAutomaton::Next(int32_t s, int32_t token) const {
  const int32_t e = FindEdge(s, token);
  return e < 0 ? -1 : edges_[static_cast<size_t>(e)].to;
}

void SuffixAutomaton::Place(int32_t edge) {
  const Edge& e = edges_[static_cast<size_t>(edge)];
  const size_t mask = slots_.size() - 1;
  size_t at = Hash(e.from, e.token) & mask;
  while (slots_[at] >= 0) at = (at + 1) & mask;
  slots_[at] = edge;
}

void SuffixAutomaton::AddEdge(int32_t from, int32_t token, int32_t to) {
  const auto edge = static_cast<int32_t>(edges_.size());
  edges_.push_back({from, token, to, states_[static_cast<size_t>(from)].first_edge});
  states_[static_cast<size_t>(from)].first_edge = edge;
  if (edges_.size() * 2 <= slots_.size()) {
    Place(edge);
    return;
  }
  slots_.assign(slots_.size() * 2, -1);
  for (int32_t e = 0; e <= edge; ++e) Place(e);
}

int32_t SuffixAutomaton::Clone(int32_t s, int32_t length) {
  const auto clone = static_cast<int32_t>(states_.size());
  State copy = states_[static_cast<size_t>(s)];
  copy.length = length;
  copy.first_edge = -1;
  states_.push_back(copy);
  for (int32_t e = first_edge(s); e >= 0; e = edge(e).next) AddEdge(clone, edge(e).token, edge(e).to);
  states_[static_cast<size_t>(s)].link = clone;
  return clone;
}

void SuffixAutomaton::Redirect(int32_t p, int32_t token, int32_t from, int32_t to) {
  for (; p >= 0; p = link(p)) {
    const int32_t e = FindEdge(p, token);
    if (e < 0 || edge(e).to != from) return;
    edges_[static_cast<size_t>(e)].to = to;
  }
}

void SuffixAutomaton::Append(int32_t token) {
  const int32_t known = Next(last_, token);
  if (known >= 0) {  // only behind a break: this text began like an earlier one
    const int32_t p = last_;
    last_ = known;
    if (length(known) != length(p) + 1) {
      last_ = Clone(known, length(p) + 1);
      Redirect(p, token, known, last_);
    }
  } else {
    const auto fresh = static_cast<int32_t>(states_.size());
    states_.push_back({});
    states_.back().length = length(last_) + 1;
    int32_t p = last_;
    for (; p >= 0 && FindEdge(p, token) < 0; p = link(p)) AddEdge(p, token, fresh);
    int32_t suffix = kRoot;
    if (p >= 0) {
      suffix = Next(p, token);
      if (length(suffix) != length(p) + 1) {
        const int32_t whole = suffix;
        suffix = Clone(whole, length(p) + 1);
        Redirect(p, token, whole, suffix);
      }
    }
    states_[static_cast<size_t>(fresh)].link = suffix;
    last_ = fresh;
  }
  int32_t s = last_;
  for (int i = 0; i < kMaxCountedSuffixes && s > kRoot; ++i, s = link(s)) {
    ++states_[static_cast<size_t>(s)].count;
    states_[static_cast<size_t>(s)].last_end = num_tokens_;
  }
  ++num_tokens_;
}

int64_t SuffixAutomaton::bytes() const {
  return static_cast<int64_t>(states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(Edge) +
                              slots_.capacity() * sizeof(int32_t));
}

}  // namespace lockstep::spec
