#include "spec/ngram.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::spec {
namespace {

// Tokens compared to see whether a text continues the known one.
constexpr size_t kCheckedTail = 16;

}  // namespace

void NgramProposer::Learn(int32_t token) {
  own_.Append(token);
  if (corpus_) corpus_->Advance(&cursor_, token);
}

void NgramProposer::Reset(std::span<const int32_t> prompt) {
  tokens_.clear();
  own_.Clear();
  if (corpus_) cursor_ = corpus_->Start();
  Observe(prompt);
}

void NgramProposer::Observe(std::span<const int32_t> committed) {
  tokens_.insert(tokens_.end(), committed.begin(), committed.end());
  if (corpus_ && !corpus_->Valid(cursor_)) {
    cursor_ = corpus_->Start();
    const size_t known = tokens_.size() - committed.size();
    for (size_t i = known - std::min<size_t>(known, kMaxMatch); i < known; ++i) corpus_->Advance(&cursor_, tokens_[i]);
  }
  for (int32_t token : committed) Learn(token);
}

void NgramProposer::Synchronise(std::span<const int32_t> tokens) {
  const size_t known = tokens_.size();
  const size_t tail = std::min(known, kCheckedTail);
  const bool continues = known <= tokens.size() && std::equal(tokens_.end() - static_cast<std::ptrdiff_t>(tail),
                                                              tokens_.end(), tokens.begin() + (known - tail));
  if (!continues || known == 0) {
    Reset(tokens);
  } else if (tokens.size() - known <= kCatchUpTokens) {
    Observe(tokens.subspan(known));
  } else {
    tokens_.assign(tokens.begin(), tokens.end() - kCatchUpTokens);
    own_.Break();
    if (corpus_) cursor_ = corpus_->Start();
    Observe(tokens.last(kCatchUpTokens));
  }
}

NgramProposer::Matches NgramProposer::MatchesOf(const SuffixAutomaton& automaton, int32_t state, int32_t length) const {
  Matches m;
  while (state >= 0 && m.num < kMatches) {
    length = std::min(length, automaton.length(state));
    if (length < kMinMatch) break;
    // The end of a text leads nowhere; its suffixes do: the text repeats with their period.
    if (automaton.first_edge(state) >= 0) {
      m.state[static_cast<size_t>(m.num)] = state;
      m.length[static_cast<size_t>(m.num)] = length;
      ++m.num;
    }
    state = automaton.link(state);
  }
  return m;
}

void NgramProposer::FindMatches() {
  nodes_.assign(1, Node{-1, -1, 0, 0, 1.0f, {}});
  nodes_[0].matches[0] = MatchesOf(own_, own_.last(), static_cast<int32_t>(tokens_.size()));
  if (!corpus_) return;
  corpus_->Settle(&cursor_);
  nodes_[0].matches[1] = MatchesOf(corpus_->automaton(), cursor_.state, cursor_.length);
}

// Each occurrence of a continuation weighs the longest match that it follows; a shorter suffix adds those that the longer
// one has not.
void NgramProposer::CollectChildren(const Node& node) {
  children_.clear();
  for (int source = 0; source < (corpus_ ? kNumSources : 1); ++source) {
    const SuffixAutomaton& automaton = Automaton(source);
    const Matches& matches = node.matches[static_cast<size_t>(source)];
    for (int i = 0; i < matches.num; ++i) {
      const auto weight = static_cast<float>(std::min(kMaxMatch, matches.length[static_cast<size_t>(i)]));
      int32_t e = automaton.first_edge(matches.state[static_cast<size_t>(i)]);
      for (int looked = 0; e >= 0 && looked < kMaxContinuations; e = automaton.edge(e).next, ++looked) {
        const SuffixAutomaton::Edge& edge = automaton.edge(e);
        if (edge.token < 0 || edge.token >= vocab_) continue;
        int32_t occurrences = automaton.count(edge.to);
        if (i > 0) {
          const int32_t longer = automaton.Next(matches.state[static_cast<size_t>(i - 1)], edge.token);
          if (longer >= 0) occurrences -= automaton.count(longer);
        }
        // Own text is nearer than any other.
        const int64_t recency = automaton.last_end(edge.to) + (source == 0 ? int64_t{1} << 32 : 0);
        auto child =
            std::find_if(children_.begin(), children_.end(), [&edge](const Child& c) { return c.token == edge.token; });
        if (child == children_.end()) child = children_.insert(children_.end(), {edge.token, 0.0f, recency});
        child->weight += weight * static_cast<float>(std::max(occurrences, 0));
      }
    }
  }
  std::sort(children_.begin(), children_.end(), [](const Child& a, const Child& b) {
    if (a.weight != b.weight) return a.weight > b.weight;
    return a.recency != b.recency ? a.recency > b.recency : a.token < b.token;
  });
}

// A chain offers only the heaviest child.
void NgramProposer::OfferChildren(int32_t index, const DraftBudget& budget) {
  const Node node = nodes_[static_cast<size_t>(index)];
  if (node.depth >= kMaxDepth) return;
  CollectChildren(node);
  float total = kEscape;
  for (const Child& c : children_) total += c.weight;
  for (const Child& c : children_) {
    const float reach = node.reach * (c.weight / total);
    if (reach < std::max(kMinReach, budget.min_reach)) break;
    Node child{c.token, index, node.depth + 1, -1, reach, {}};
    for (int source = 0; source < (corpus_ ? kNumSources : 1); ++source) {
      // Of the longest suffix that the token follows.
      const SuffixAutomaton& automaton = Automaton(source);
      const Matches& from = node.matches[static_cast<size_t>(source)];
      for (int i = 0; i < from.num; ++i) {
        const int32_t next = automaton.Next(from.state[static_cast<size_t>(i)], c.token);
        if (next < 0) continue;
        child.matches[static_cast<size_t>(source)] =
            MatchesOf(automaton, next, from.length[static_cast<size_t>(i)] + 1);
        break;
      }
    }
    frontier_.push_back(static_cast<int32_t>(nodes_.size()));
    nodes_.push_back(child);
    if (budget.shape == ShapeLimit::kChain) return;
  }
}

void NgramProposer::Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) {
  LS_CHECK(!context.tokens.empty());
  LS_CHECK(context.budget.max_nodes >= 0 && context.budget.max_nodes <= step::kMaxTreeNodes);
  out->Reset(context.tokens.back());
  probability->assign(1, 1.0f);
  Synchronise(context.tokens);
  if (context.budget.max_nodes == 0) return;
  FindMatches();
  frontier_.clear();
  OfferChildren(0, context.budget);
  while (out->num_nodes < context.budget.max_nodes && !frontier_.empty()) {
    // The likeliest; of equals the first that was offered. The frontier is short: a scan beats a heap.
    auto best = frontier_.begin();
    for (auto it = best + 1; it != frontier_.end(); ++it) {
      if (nodes_[static_cast<size_t>(*it)].reach > nodes_[static_cast<size_t>(*best)].reach) best = it;
    }
    const int32_t index = *best;
    frontier_.erase(best);
    Node& node = nodes_[static_cast<size_t>(index)];
    node.row = out->Add(nodes_[static_cast<size_t>(node.parent)].row, node.token);
    probability->push_back(node.reach);
    if (out->num_nodes < context.budget.max_nodes) OfferChildren(index, context.budget);
  }
}

}  // namespace lockstep::spec
