#include "engine/drafting.h"

#include <algorithm>

#include "spec/bench_proposers.h"
#include "spec/ngram.h"

namespace lockstep::engine {
namespace {

// Rows that a round of automatic shape has at most: up to 8 rows (the root included) share one pass over the weights in
// the widest kernel tile.
constexpr int kAutoNodes = 7;
// A draft row costs about a tenth of a plain step on the CPU (docs/results); one that is less likely to be reached than
// this costs more than it brings.
constexpr float kAutoMinReach = 0.15f;

template <typename Proposer>
std::unique_ptr<Proposer> MakeKnowing(const Request& request, int vocab) {
  std::vector<int32_t> text = request.prompt;
  text.insert(text.end(), request.truth.begin(), request.truth.end());
  auto proposer = std::make_unique<Proposer>(vocab);
  proposer->SetTruth(text);
  return proposer;
}

std::unique_ptr<spec::Proposer> MakeProposer(const Request& request, int vocab) {
  switch (request.drafter) {
    case Drafter::kNone:
      return nullptr;
    case Drafter::kNgram:
      return std::make_unique<spec::NgramProposer>(vocab);
    case Drafter::kRandom:
      return std::make_unique<spec::RandomProposer>(vocab, request.sampling.seed);
    case Drafter::kOracle:
      return MakeKnowing<spec::OracleProposer>(request, vocab);
    case Drafter::kWrong:
      return MakeKnowing<spec::WrongProposer>(request, vocab);
  }
  return nullptr;
}

}  // namespace

Drafting::Drafting(const Request& request, int vocab, spec::Gate* gate)
    : proposer_(MakeProposer(request, vocab)),
      shape_(request.shape),
      gate_(gate),
      seed_(request.sampling.seed),
      temperature_(request.sampling.temperature) {
  if (proposer_) proposer_->Reset(request.prompt);
  gate_->StartRequest();
}

void Drafting::Observe(std::span<const int32_t> committed) {
  if (proposer_) proposer_->Observe(committed);
}

void Drafting::Propose(std::span<const int32_t> tokens, int max_nodes, step::DraftTree* tree) {
  tree->Reset(tokens.back());
  if (!proposer_) return;
  const bool automatic = shape_.kind == DraftShape::Kind::kAuto;
  const int nodes = std::min(max_nodes, automatic ? kAutoNodes : shape_.num_nodes);
  if (nodes <= 0) return;
  spec::ProposeContext context;
  context.tokens = tokens;
  context.position = static_cast<int64_t>(tokens.size()) - 1;
  context.budget = {nodes,
                    shape_.kind == DraftShape::Kind::kChain ? spec::ShapeLimit::kChain : spec::ShapeLimit::kTree};
  context.seed = seed_;
  context.temperature = temperature_;
  if (!automatic) {
    proposer_->Propose(context, tree, &probability_);
    return;
  }
  proposer_->Propose(context, &proposed_, &probability_);
  Prune(nodes, tree);
  if (tree->num_nodes > 0 && !gate_->Decide(tree->num_rows()).draft) tree->Reset(tokens.back());
}

// Keeps the rows that are likely enough; a kept row's parent is kept too, since it is at least as likely.
void Drafting::Prune(int max_nodes, step::DraftTree* tree) {
  row_of_.assign(static_cast<size_t>(proposed_.num_rows()), -1);
  row_of_[0] = 0;
  for (int row = 1; row < proposed_.num_rows() && tree->num_nodes < max_nodes; ++row) {
    const int parent = row_of_[static_cast<size_t>(proposed_.parents[row])];
    if (parent < 0 || probability_[static_cast<size_t>(row)] < kAutoMinReach) continue;
    row_of_[static_cast<size_t>(row)] = tree->Add(parent, proposed_.tokens[row]);
  }
}

}  // namespace lockstep::engine
