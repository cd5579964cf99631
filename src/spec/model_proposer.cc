#include "spec/model_proposer.h"

#include <algorithm>

#include "base/check.h"
#include "model/config.h"

namespace lockstep::spec {
namespace {

constexpr double kKeep = 0.9;
constexpr double kForget = 0.95;

void Fade(double value, double* mean) {
  *mean = *mean == 0 ? value : kKeep * *mean + (1 - kKeep) * value;
}

}  // namespace

ModelProposer::ModelProposer(step::StepRunner* runner, int draft, int sequence, const Clock* clock)
    : runner_(runner),
      draft_(draft),
      sequence_(sequence),
      clock_(clock),
      is_head_(runner->draft_config(draft).arch == model::kHeadArch),
      vocab_(is_head_ ? runner->config().vocab : runner->draft_config(draft).vocab),
      context_(runner->draft_context(draft)) {}

void ModelProposer::Reset(std::span<const int32_t>) {
  read_.clear();
  window_ = next_ = 0;
  fresh_ = true;
}

void ModelProposer::Observe(std::span<const int32_t>) {}  // Propose sees the whole text

// Positions [0, end) can be read: a head pairs the feature of a position with the token behind it, so the last committed
// token, which the target has not read yet, belongs to the pair before.
int64_t ModelProposer::end(const ProposeContext& context) const {
  return static_cast<int64_t>(context.tokens.size()) - (is_head_ ? 1 : 0);
}

int ModelProposer::TapSlot(const ProposeContext& context, int64_t position) {
  for (const step::KvMove& move : context.pending_moves) {
    if (move.to_row == position) return move.from_row;
  }
  return static_cast<int>(position);
}

step::StepSequence& ModelProposer::AddSequence(step::StepInput& in, int committed,
                                               const ProposeContext& context) const {
  step::StepSequence& s = in.sequences[in.num_sequences++];
  s = {};
  s.kv = {committed, sequence_ * runner_->draft_pages_per_sequence(draft_), sequence_};
  s.slot = sequence_;
  s.sampling.seed = context.seed;
  s.sampling.temperature = context.temperature;
  s.noise_offset = static_cast<int32_t>(window_ + (is_head_ ? 2 : 1));
  return s;
}

bool ModelProposer::CatchUp(const ProposeContext& context) {
  const std::span<const int32_t> tokens = context.tokens;
  const int64_t end = this->end(context);
  if (end < 1) return false;
  // What was read must still stand there, or it was another text.
  if (read_.size() > tokens.size() || !std::equal(read_.begin(), read_.end(), tokens.begin())) Reset({});
  // Room for this proposal's own nodes too.
  const int64_t most = context_ - std::min(context_ / 2, context.budget.max_nodes + kLevelRows);
  if (fresh_) {
    window_ = next_ = std::max<int64_t>(0, end - std::min<int64_t>(kDraftWindow, most));
  } else if (end - next_ > kDraftCatchUp) {
    window_ = next_ = end - std::min<int64_t>(kDraftCatchUp, most);
  } else if (end - window_ > most) {
    window_ = next_ = end - std::clamp<int64_t>(most / 2, 1, kDraftWindow);
  }
  fresh_ = false;
  // At least the last position is read again: its logits are wanted.
  next_ = std::min(next_, end - 1);
  step::StepInput& in = runner_->draft_input(draft_);
  step::StepSequence& s = AddSequence(in, static_cast<int>(next_ - window_), context);
  const int num = static_cast<int>(end - next_);
  for (int i = 0; i < num; ++i) {
    const int64_t position = next_ + i;
    const auto at = static_cast<int32_t>(position - window_);
    const int32_t token = tokens[static_cast<size_t>(position + (is_head_ ? 1 : 0))];
    // Padding of the target's vocabulary, for which this draft may have no row: it stands for no text, so any will do.
    in.rows[i] = {token < vocab_ ? token : 0, at, 0, i - 1, at, 0, is_head_ ? TapSlot(context, position) : 0};
  }
  s.num_rows = in.num_rows = num;
  s.num_logits_rows = in.num_logits_rows = 1;
  in.logits_rows[0] = num - 1;
  in.rows[num - 1].wants_logits = 1;
  in.fused = is_head_ ? 1 : 0;
  num_states_ = 0;
  in.hidden_out = num_states_++;
  if (!runner_->RunDraft(draft_).ok()) return false;
  next_ = end;
  read_.insert(read_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(read_.size()), tokens.end());
  return true;
}

void ModelProposer::AddChildren(int parent, int logits_idx, const ProposeContext& context) {
  std::array<step::DraftCandidate, step::kDraftTopK> best;
  const size_t wanted = context.budget.shape == ShapeLimit::kChain ? 1 : best.size();
  const int num = runner_->Candidates(draft_, logits_idx, context.temperature > 0, std::span(best).first(wanted));
  const float reach = parent < 0 ? 1.0f : nodes_[static_cast<size_t>(parent)].reach;
  const int depth = parent < 0 ? 1 : nodes_[static_cast<size_t>(parent)].depth + 1;
  for (int i = 0; i < num; ++i) {
    const auto& [token, probability] = best[static_cast<size_t>(i)];
    nodes_.push_back({token, parent, depth, reach * probability, -1, -1});
  }
  if (parent >= 0 && num > 0) Fade(best[0].probability, &child_reach_);
}

// A parent's reach is at least its child's and it was made before: of equals the older first keeps parents in front.
void ModelProposer::SortByReach() {
  order_.resize(nodes_.size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<int32_t>(i);
  std::stable_sort(order_.begin(), order_.end(), [this](int32_t a, int32_t b) {
    return nodes_[static_cast<size_t>(a)].reach > nodes_[static_cast<size_t>(b)].reach;
  });
}

// The nodes that the tree would have now, and of them those whose children may come into it.
void ModelProposer::PickFrontier(const DraftBudget& budget) {
  frontier_.clear();
  if (budget.shape == ShapeLimit::kChain) {
    if (static_cast<int>(nodes_.size()) < budget.max_nodes && nodes_.back().state < 0 &&
        nodes_.back().reach >= budget.min_reach)
      frontier_.push_back(static_cast<int32_t>(nodes_.size()) - 1);
    return;
  }
  SortByReach();
  const size_t taken = std::min(order_.size(), static_cast<size_t>(budget.max_nodes));
  const float last =
      static_cast<int>(taken) < budget.max_nodes ? 0.0f : nodes_[static_cast<size_t>(order_[taken - 1])].reach;
  const float bar = std::max(last, budget.min_reach);
  for (size_t i = 0; i < taken && frontier_.size() < kLevelRows; ++i) {
    const Node& node = nodes_[static_cast<size_t>(order_[i])];
    if (node.state >= 0 || node.depth >= kMaxDraftDepth) continue;
    if (node.reach * child_reach_ > bar) frontier_.push_back(order_[i]);
  }
}

// Its keys must fit.
void ModelProposer::FitFrontier(const ProposeContext& context) {
  const int64_t room = context_ - (end(context) - window_) - static_cast<int64_t>(ran_.size());
  if (static_cast<int64_t>(frontier_.size()) > room) frontier_.resize(static_cast<size_t>(std::max<int64_t>(0, room)));
}

// A level costs its step and, later, the rows that come of it.
bool ModelProposer::LevelPays(const DraftBudget& budget) const {
  if (frontier_.empty()) return false;
  if (budget.tokens_per_second <= 0) return true;  // a fixed shape
  double gain = 0;
  for (int32_t i : frontier_)
    gain += std::max(0.0, nodes_[static_cast<size_t>(i)].reach * child_reach_ - double{budget.min_reach});
  return gain > level_secs_ * double{budget.tokens_per_second};
}

bool ModelProposer::RunLevel(const ProposeContext& context) {
  step::StepInput& in = runner_->draft_input(draft_);
  const auto committed = static_cast<int>(end(context) - window_);
  step::StepSequence& s = AddSequence(in, committed, context);
  // Nodes that were run before are ancestors, behind the step's own rows.
  const int num = static_cast<int>(frontier_.size());
  row_of_.assign(nodes_.size(), -1);
  for (size_t i = 0; i < ran_.size(); ++i) row_of_[static_cast<size_t>(ran_[i])] = num + static_cast<int>(i);
  auto fill = [&](int row, int node_idx) {
    const Node& node = nodes_[static_cast<size_t>(node_idx)];
    const int parent = node.parent < 0 ? -1 : row_of_[static_cast<size_t>(node.parent)];
    in.rows[row] = {node.token, committed + node.depth - 1, 0, parent, node.slot, 0, 0};
  };
  for (int32_t i : ran_) fill(row_of_[static_cast<size_t>(i)], i);
  for (int row = 0; row < num; ++row) {
    Node& node = nodes_[static_cast<size_t>(frontier_[static_cast<size_t>(row)])];
    node.slot = committed + static_cast<int32_t>(ran_.size()) + row;
    fill(row, frontier_[static_cast<size_t>(row)]);
    in.rows[row].wants_logits = 1;
    in.rows[row].feature = node.parent < 0 ? 0 : nodes_[static_cast<size_t>(node.parent)].state;
    in.logits_rows[row] = row;
  }
  s.num_rows = in.num_rows = s.num_logits_rows = in.num_logits_rows = num;
  in.num_path_rows = static_cast<int32_t>(ran_.size());
  in.hidden_out = num_states_;
  const double start = clock_->Now();
  if (!runner_->RunDraft(draft_).ok()) return false;
  for (int row = 0; row < num; ++row) {
    const int32_t node = frontier_[static_cast<size_t>(row)];
    nodes_[static_cast<size_t>(node)].state = num_states_ + row;
    ran_.push_back(node);
  }
  num_states_ += num;
  for (int row = 0; row < num; ++row) AddChildren(frontier_[static_cast<size_t>(row)], row, context);
  Fade(clock_->Now() - start, &level_secs_);
  return true;
}

void ModelProposer::Emit(const DraftBudget& budget, step::DraftTree* out, std::vector<float>* probability) {
  SortByReach();  // a chain's order as it is
  row_of_.assign(nodes_.size(), -1);
  for (size_t i = 0; i < order_.size() && out->num_nodes < budget.max_nodes; ++i) {
    const Node& node = nodes_[static_cast<size_t>(order_[i])];
    if (node.reach < budget.min_reach) break;
    const int parent = node.parent < 0 ? 0 : row_of_[static_cast<size_t>(node.parent)];
    row_of_[static_cast<size_t>(order_[i])] = out->Add(parent, node.token);
    probability->push_back(node.reach);
  }
}

void ModelProposer::Propose(const ProposeContext& context, step::DraftTree* out, std::vector<float>* probability) {
  LS_CHECK(!context.tokens.empty());
  out->Reset(context.tokens.back());
  probability->assign(1, 1.0f);
  opened_ = fresh_;
  if (context.budget.max_nodes < 1) return;
  nodes_.clear();
  ran_.clear();
  if (!CatchUp(context)) return;
  AddChildren(-1, 0, context);
  if (nodes_.empty()) return;
  const bool chain = context.budget.shape == ShapeLimit::kChain;
  for (int level = 1; level < (chain ? context.budget.max_nodes : kMaxDraftDepth); ++level) {
    PickFrontier(context.budget);
    FitFrontier(context);
    if (!LevelPays(context.budget)) {
      // One level that the machine made slow must not end deep drafts for good.
      level_secs_ *= kForget;
      break;
    }
    if (!RunLevel(context)) break;
  }
  Emit(context.budget, out, probability);
}

}  // namespace lockstep::spec
