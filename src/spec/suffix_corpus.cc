#include "spec/suffix_corpus.h"

#include <algorithm>

namespace lockstep::spec {
namespace {

// What a token costs at most, with vectors that double: its own, two states, three edges, slots twice over.
constexpr int64_t kBytesPerToken = 4 + 2 * (2 * 20 + 3 * 16) + 4 * 3 * 4;

}  // namespace

void SuffixCorpus::Add(std::span<const int32_t> text) {
  const int64_t most_tokens = max_bytes_ / kBytesPerToken;
  // Of a text that is too long alone, the end.
  if (static_cast<int64_t>(text.size()) > most_tokens / 2)
    text = text.last(static_cast<size_t>(std::max<int64_t>(0, most_tokens / 2)));
  if (text.empty()) return;
  if (num_tokens() + static_cast<int64_t>(text.size()) > most_tokens) Forget();
  texts_.emplace_back(text.begin(), text.end());
  automaton_.Break();
  for (int32_t token : text) automaton_.Append(token);
}

void SuffixCorpus::Forget() {
  ++generation_;
  const int64_t keep = num_tokens() / 2;
  int64_t held = num_tokens();
  while (!texts_.empty() && held > keep) {
    held -= static_cast<int64_t>(texts_.front().size());
    texts_.pop_front();
  }
  automaton_.Clear();
  for (const std::vector<int32_t>& text : texts_) {
    automaton_.Break();
    for (int32_t token : text) automaton_.Append(token);
  }
}

void SuffixCorpus::Settle(Cursor* c) const {
  // A state that was split since keeps its longer strings; shorter ones moved to its link.
  while (c->state != SuffixAutomaton::kRoot && c->length <= automaton_.length(automaton_.link(c->state)))
    c->state = automaton_.link(c->state);
}

void SuffixCorpus::Advance(Cursor* c, int32_t token) const {
  Settle(c);
  int32_t next = automaton_.Next(c->state, token);
  while (next < 0 && c->state != SuffixAutomaton::kRoot) {
    c->state = automaton_.link(c->state);
    c->length = automaton_.length(c->state);
    next = automaton_.Next(c->state, token);
  }
  if (next < 0) return;  // the root, and nothing matches
  c->state = next;
  ++c->length;
}

}  // namespace lockstep::spec
