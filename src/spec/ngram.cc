#include "spec/ngram.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::spec {
namespace {

constexpr int kFirstSlots = 256;
// Tokens compared to see whether the context still continues what was learnt. A rollback or another request differs in
// its last tokens; comparing all of them would cost O(n) a step.
constexpr int kCheckedTail = 16;

uint64_t Mix(uint64_t h, int32_t token) {
  h ^= static_cast<uint32_t>(token);
  h *= 0x9E3779B97F4A7C15ull;  // 2^64 / golden ratio
  return h ^ (h >> 29);
}

}  // namespace

void NgramProposer::Chains::Clear() {
  slots.assign(kFirstSlots, Slot{});
  previous.clear();
  num_used = 0;
}

NgramProposer::Chains::Slot* NgramProposer::Chains::Probe(uint64_t hash) {
  const size_t mask = slots.size() - 1;
  size_t i = hash & mask;
  while (slots[i].end >= 0 && slots[i].hash != hash) i = (i + 1) & mask;
  return &slots[i];
}

void NgramProposer::Chains::Grow() {
  std::vector<Slot> old(slots.size() * 2);
  old.swap(slots);
  for (const Slot& slot : old)
    if (slot.end >= 0) *Probe(slot.hash) = slot;
}

void NgramProposer::Chains::Add(uint64_t hash, int32_t end) {
  previous.resize(end + 1, -1);
  if (static_cast<size_t>(num_used) * 2 >= slots.size()) Grow();
  Slot* slot = Probe(hash);
  if (slot->end < 0) ++num_used;
  previous[end] = slot->end;
  *slot = {hash, end};
}

int32_t NgramProposer::Chains::Find(uint64_t hash) const {
  return slots.empty() ? -1 : const_cast<Chains*>(this)->Probe(hash)->end;
}

uint64_t NgramProposer::HashEndingAt(int end, int n) const {
  uint64_t h = static_cast<uint64_t>(n);
  for (int i = end - n + 1; i <= end; ++i) h = Mix(h, tokens_[i]);
  return h;
}

void NgramProposer::Learn(int32_t token) {
  tokens_.push_back(token);
  const int end = static_cast<int>(tokens_.size()) - 1;
  for (int level = 0; level < kNumNgramLengths; ++level) {
    const int n = kNgramLengths[level];
    if (end + 1 >= n) chains_[level].Add(HashEndingAt(end, n), end);
  }
}

void NgramProposer::Reset(std::span<const int32_t> prompt) {
  tokens_.clear();
  for (Chains& chains : chains_) chains.Clear();
  Observe(prompt);
}

void NgramProposer::Observe(std::span<const int32_t> committed) {
  if (chains_[0].slots.empty())
    for (Chains& chains : chains_) chains.Clear();
  for (int32_t token : committed) Learn(token);
}

void NgramProposer::Synchronise(std::span<const int32_t> tokens) {
  const size_t known = tokens_.size();
  const size_t tail = std::min<size_t>(known, kCheckedTail);
  const bool continues =
      known <= tokens.size() && std::equal(tokens_.end() - tail, tokens_.end(), tokens.begin() + (known - tail));
  if (continues)
    Observe(tokens.subspan(known));
  else
    Reset(tokens);
}

int NgramProposer::MatchLength(int end) const {
  const int last = static_cast<int>(tokens_.size()) - 1;
  const int most = std::min(kMaxMatch, end + 1);
  int match = 0;
  while (match < most && tokens_[end - match] == tokens_[last - match]) ++match;
  return match;
}

void NgramProposer::FindPlaces() {
  places_.clear();
  const int last = static_cast<int>(tokens_.size()) - 1;
  int num_looked_at = 0;
  for (int level = 0; level < kNumNgramLengths; ++level) {
    const int n = kNgramLengths[level];
    if (last + 1 < n) continue;
    // The newest entry is the end of the text itself.
    int32_t end = chains_[level].Find(HashEndingAt(last, n));
    for (; end >= 0 && num_looked_at < kMaxPlaces; end = chains_[level].previous[end]) {
      if (end == last) continue;
      ++num_looked_at;
      const int match = MatchLength(end);
      if (match < n) continue;  // another n-gram with the same hash
      // A place that a longer n has found already; those were at most kMaxPlaces.
      const bool known =
          std::any_of(places_.begin(), places_.end(), [&](const Place& place) { return place.end == end; });
      if (!known) places_.push_back({end, match});
    }
  }
  std::stable_sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
    return a.match > b.match || (a.match == b.match && a.end > b.end);
  });
  if (places_.size() > kMaxBranches) places_.resize(kMaxBranches);
}

void NgramProposer::AddContinuation(const Place& place, int max_depth) {
  const int period = static_cast<int>(tokens_.size()) - 1 - place.end;
  const float weight = static_cast<float>(place.match);
  int node = 0;
  for (int depth = 0; depth < max_depth; ++depth) {
    // Past the end of the text a continuation goes on with itself: the text repeats with this period.
    const int32_t token = tokens_[place.end + 1 + depth % period];
    if (token < 0 || token >= vocab_) return;
    int last_child = -1;
    int child = trie_[node].first_child;
    while (child >= 0 && trie_[child].token != token) {
      last_child = child;
      child = trie_[child].next_sibling;
    }
    if (child < 0) {
      child = static_cast<int>(trie_.size());
      trie_.push_back({token, node, -1, -1, 0.0f, 0.0f});
      (last_child < 0 ? trie_[node].first_child : trie_[last_child].next_sibling) = child;
    }
    trie_[child].weight += weight;
    node = child;
  }
}

void NgramProposer::Select(const DraftBudget& budget, step::DraftTree* out, std::vector<float>* probability) {
  // Best-first: the frontier holds the children of chosen nodes. A chain offers only the heaviest child of its end.
  frontier_.clear();
  row_of_.assign(trie_.size(), -1);
  row_of_[0] = 0;
  trie_[0].reach = 1;
  auto offer_children = [&](int node) {
    float total = kEscape;
    for (int c = trie_[node].first_child; c >= 0; c = trie_[c].next_sibling) total += trie_[c].weight;
    int heaviest = -1;
    for (int c = trie_[node].first_child; c >= 0; c = trie_[c].next_sibling) {
      trie_[c].reach = trie_[node].reach * (trie_[c].weight / total);
      if (trie_[c].reach < kMinReach) continue;
      if (budget.shape == ShapeLimit::kTree)
        frontier_.push_back(c);
      else if (heaviest < 0 || trie_[c].weight > trie_[heaviest].weight)
        heaviest = c;
    }
    if (heaviest >= 0) frontier_.push_back(heaviest);
  };
  offer_children(0);
  while (out->num_nodes < budget.max_nodes && !frontier_.empty()) {
    // The likeliest; of equals the one inserted into the trie first. The frontier is short: a scan beats a heap.
    auto best = frontier_.begin();
    for (auto it = best + 1; it != frontier_.end(); ++it) {
      const TrieNode &a = trie_[*it], &b = trie_[*best];
      if (a.reach > b.reach || (a.reach == b.reach && *it < *best)) best = it;
    }
    const int node = *best;
    frontier_.erase(best);
    row_of_[node] = out->Add(row_of_[trie_[node].parent], trie_[node].token);
    probability->push_back(trie_[node].reach);
    offer_children(node);
  }
}

void NgramProposer::Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) {
  LS_CHECK(!context.tokens.empty());
  LS_CHECK(context.budget.max_nodes >= 0 && context.budget.max_nodes <= step::kMaxTreeNodes);
  out->Reset(context.tokens.back());
  probability->assign(1, 1.0f);
  Synchronise(context.tokens);
  if (context.budget.max_nodes == 0) return;
  FindPlaces();
  if (places_.empty()) return;
  trie_.assign(1, TrieNode{-1, -1, -1, -1, 0.0f, 0.0f});
  const int max_depth = std::min(kMaxDepth, context.budget.max_nodes);
  for (const Place& place : places_) AddContinuation(place, max_depth);
  Select(context.budget, out, probability);
}

}  // namespace lockstep::spec
