#include "engine/drafting.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "spec/bench_proposers.h"
#include "spec/model_proposer.h"
#include "spec/ngram.h"

namespace lockstep::engine {
namespace {

template <typename Proposer>
std::unique_ptr<Proposer> MakeKnowing(const Request& request, int vocab) {
  std::vector<int32_t> text = request.prompt;
  text.insert(text.end(), request.truth.begin(), request.truth.end());
  auto proposer = std::make_unique<Proposer>(vocab);
  proposer->SetTruth(text);
  return proposer;
}

}  // namespace

std::unique_ptr<spec::Proposer> Drafting::MakeProposer(Drafter drafter, const Request& request,
                                                       const Means& means) const {
  const int vocab = means.vocab;
  switch (drafter) {
    case Drafter::kNgram:
      return std::make_unique<spec::NgramProposer>(vocab, means.corpus);
    case Drafter::kEagle3:
      return std::make_unique<spec::ModelProposer>(means.runner, means.drafts->head, means.sequence, means.clock);
    case Drafter::kDraft:
      return std::make_unique<spec::ModelProposer>(means.runner, means.drafts->model, means.sequence, means.clock);
    case Drafter::kRandom:
      return std::make_unique<spec::RandomProposer>(vocab, request.sampling.seed);
    case Drafter::kOracle:
      return MakeKnowing<spec::OracleProposer>(request, vocab);
    case Drafter::kWrong:
      return MakeKnowing<spec::WrongProposer>(request, vocab);
    case Drafter::kNone:
    case Drafter::kAuto:
      break;
  }
  LS_CHECK(false);
  return nullptr;
}

Drafting::Drafting(const Request& request, const Means& means)
    : shape_(request.shape),
      governed_(request.shape.kind == DraftShape::Kind::kAuto && request.drafter != Drafter::kNone),
      governor_(means.governor),
      prompt_tokens_(request.prompt.size()),
      seed_(request.sampling.seed),
      temperature_(request.sampling.temperature) {
  static std::atomic<int64_t> next_id{0};
  id_ = next_id++;
  for (Drafter drafter : DraftersOf(request.drafter, *means.drafts)) {
    sources_.push_back({MakeProposer(drafter, request, means), drafter, false});
  }
  offers_.resize(sources_.size());
  if (governed_) governor_->StartRequest(id_);
}

Drafting::~Drafting() {
  if (governed_) governor_->EndRequest(id_);
}

void Drafting::Run(Source& source, std::span<const int32_t> tokens, const spec::DraftBudget& budget,
                   step::DraftTree* tree) {
  if (!source.ready) source.proposer->Reset(tokens.first(prompt_tokens_));
  source.ready = true;
  spec::ProposeContext context;
  context.tokens = tokens;
  context.position = static_cast<int64_t>(tokens.size()) - 1;
  context.budget = budget;
  context.seed = seed_;
  context.temperature = temperature_;
  context.pending_moves = moves_;
  source.proposer->Propose(context, tree, &probability_);
}

void Drafting::Propose(std::span<const int32_t> tokens, int max_nodes, std::span<const step::KvMove> moves,
                       step::DraftTree* tree) {
  tree->Reset(tokens.back());
  moves_ = moves;
  if (sources_.empty()) return;
  if (!governed_) {
    const int nodes = std::min(max_nodes, shape_.num_nodes);
    const bool chain = shape_.kind == DraftShape::Kind::kChain;
    const spec::DraftBudget budget = {nodes, chain ? spec::ShapeLimit::kChain : spec::ShapeLimit::kTree};
    // Nothing measures them here: the first that has something to say.
    for (size_t d = 0; d < sources_.size() && nodes > 0 && tree->num_nodes == 0; ++d) {
      Run(sources_[d], tokens, budget, tree);
      chosen_ = static_cast<int>(d);
    }
    return;
  }
  const spec::RoundRequest request{id_, static_cast<int64_t>(tokens.size()) - 1, max_nodes};
  governor_->BeginRound(std::span(&request, 1));
  for (int d; (d = governor_->NextDrafter(0)) >= 0;) {
    step::DraftTree& offer = offers_[static_cast<size_t>(d)];
    Run(sources_[static_cast<size_t>(d)], tokens,
        {governor_->budget(0), spec::ShapeLimit::kTree, governor_->min_reach(),
         static_cast<float>(governor_->tokens_per_second())},
        &offer);
    governor_->Offer(0, d, offer, probability_, sources_[static_cast<size_t>(d)].proposer->opened());
  }
  const spec::RequestDecision& decision = governor_->Decide()[0];
  kept_.assign(1, 0);
  if (decision.drafter < 0) return;
  chosen_ = decision.drafter;
  const step::DraftTree& offer = offers_[static_cast<size_t>(decision.drafter)];
  row_of_.assign(static_cast<size_t>(offer.num_rows()), -1);
  row_of_[0] = 0;
  for (int32_t row : decision.rows) {
    row_of_[static_cast<size_t>(row)] = tree->Add(row_of_[static_cast<size_t>(offer.parents[row])], offer.tokens[row]);
    kept_.push_back(row);
  }
}

void Drafting::Finish(int num_tokens, std::span<const int32_t> path) {
  if (!governed_) return;
  accepted_.clear();
  for (int32_t row : path) accepted_.push_back(kept_[static_cast<size_t>(row)]);
  const spec::RequestOutcome outcome{num_tokens, accepted_};
  governor_->EndRound(std::span(&outcome, 1));
}

}  // namespace lockstep::engine
