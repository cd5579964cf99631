#include "spec/bench_proposers.h"

#include <algorithm>

#include "base/check.h"
#include "step/noise.h"

namespace lockstep::spec {
namespace {

void Start(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) {
  LS_CHECK(!context.tokens.empty());
  LS_CHECK(context.budget.max_nodes >= 0 && context.budget.max_nodes <= step::kMaxTreeNodes);
  out->Reset(context.tokens.back());
  probability->assign(1, 1.0f);
}

// Zero for a 32-bit word maps to id 0, all ones to vocab - 1, without a division.
int32_t Below(uint32_t word, int count) {
  return static_cast<int32_t>((uint64_t{word} * static_cast<uint64_t>(count)) >> 32);
}

}  // namespace

void OracleProposer::Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) {
  Start(context, out, probability);
  const int max_nodes = context.budget.max_nodes;
  const bool siblings = context.budget.shape == ShapeLimit::kTree && vocab_ >= 2;
  int parent = 0;
  for (size_t i = context.tokens.size(); i < truth_.size() && out->num_nodes < max_nodes; ++i) {
    const int32_t right = truth_[i];
    if (right < 0 || right >= vocab_) return;
    // With one node left it goes to the right token.
    if (siblings && out->num_nodes + 1 < max_nodes) {
      out->Add(parent, (right + 1) % vocab_);
      probability->push_back(0.0f);
    }
    parent = out->Add(parent, right);
    probability->push_back(1.0f);
  }
}

void WrongProposer::Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) {
  Start(context, out, probability);
  const size_t first = context.tokens.size();
  if (vocab_ < 2 || first >= truth_.size()) return;
  const bool chain = context.budget.shape == ShapeLimit::kChain;
  // Tree: up to three wrong children at the root, then chains below them; a wrong first token makes the rest wrong.
  const int num_children = chain ? 1 : std::min(3, vocab_ - 1);
  for (int i = 0; i < context.budget.max_nodes; ++i) {
    const int parent = i < num_children ? 0 : i + 1 - num_children;
    const size_t place = first + static_cast<size_t>(out->Depth(parent));
    if (place >= truth_.size()) return;
    const int offset = i < num_children ? 1 + i : 1;
    const int64_t right = truth_[place] < 0 ? 0 : truth_[place];
    out->Add(parent, static_cast<int32_t>((right + offset) % vocab_));
    probability->push_back(1.0f);
  }
}

void RandomProposer::Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) {
  Start(context, out, probability);
  for (int i = 0; i < context.budget.max_nodes; ++i) {
    const step::PhiloxBlock block = step::NoiseBlock(seed_, context.position, i);
    const int parent = context.budget.shape == ShapeLimit::kChain ? i : Below(block.word[1], out->num_rows());
    const int row = out->Add(parent, Below(block.word[0], vocab_));
    probability->push_back((*probability)[out->parents[row]] / static_cast<float>(vocab_));
  }
}

}  // namespace lockstep::spec
