#include "step/accept_walk.h"

#include <fmt/format.h>

#include "base/check.h"

namespace lockstep::step {

void DraftTree::Reset(int32_t root_token) {
  num_nodes = 0;
  parents[0] = -1;
  tokens[0] = root_token;
}

int DraftTree::Add(int parent_row, int32_t token) {
  LS_CHECK_LT(num_nodes, kMaxTreeNodes);
  LS_CHECK(parent_row >= 0 && parent_row < num_rows());
  const int row = ++num_nodes;
  parents[row] = parent_row;
  tokens[row] = token;
  return row;
}

int DraftTree::FindChild(int parent_row, int32_t token) const {
  for (int row = parent_row + 1; row < num_rows(); ++row)
    if (parents[row] == parent_row && tokens[row] == token) return row;
  return -1;
}

int DraftTree::Depth(int row) const {
  int depth = 0;
  for (; row > 0; row = parents[row]) ++depth;
  return depth;
}

int DraftTree::PathTokens(int row, std::span<int32_t> path) const {
  const int depth = Depth(row);
  LS_CHECK_LE(static_cast<size_t>(depth), path.size());
  for (int i = depth - 1; row > 0; row = parents[row], --i) path[i] = tokens[row];
  return depth;
}

bool DraftTree::IsChain() const {
  for (int row = 1; row < num_rows(); ++row)
    if (parents[row] != row - 1) return false;
  return true;
}

Status ValidateTree(const DraftTree& tree, int vocab) {
  if (tree.num_nodes < 0 || tree.num_nodes > kMaxTreeNodes)
    return InvalidArgument(fmt::format("draft tree: {} nodes, 0 to {} allowed", tree.num_nodes, kMaxTreeNodes));
  if (tree.parents[0] != -1)
    return InvalidArgument(fmt::format("draft tree: row 0 has parent {}, the root has none (-1)", tree.parents[0]));
  for (int row = 0; row < tree.num_rows(); ++row) {
    if (row > 0 && (tree.parents[row] < 0 || tree.parents[row] >= row))
      return InvalidArgument(
          fmt::format("draft tree: row {} has parent {}, which is no earlier row", row, tree.parents[row]));
    if (tree.tokens[row] < 0 || tree.tokens[row] >= vocab)
      return InvalidArgument(
          fmt::format("draft tree: row {} has token {}, the vocabulary has {}", row, tree.tokens[row], vocab));
  }
  return OkStatus();
}

void WalkResult::Truncate(int num_tokens) {
  LS_CHECK(num_tokens >= 0 && num_tokens <= num_emitted);
  if (num_tokens < num_emitted) failed_row = -1;  // the walk never came there
  num_emitted = num_tokens;
}

WalkResult Walk(const DraftTree& tree, std::span<const int32_t> sampled) {
  LS_CHECK_GE(sampled.size(), static_cast<size_t>(tree.num_rows()));
  WalkResult walk;
  // Linear in the rows altogether: a child stands after its parent, so each search starts where the last one ended.
  for (int row = 0; row >= 0; row = tree.FindChild(row, sampled[row])) {
    if (sampled[row] < 0) {
      walk.failed_row = row;
      break;
    }
    walk.rows[walk.num_emitted] = row;
    walk.tokens[walk.num_emitted] = sampled[row];
    ++walk.num_emitted;
  }
  return walk;
}

int CompactionMoves(const WalkResult& walk, std::span<KvMove> moves) {
  int num_moves = 0;
  for (int i = 0; i < walk.num_emitted; ++i) {
    if (walk.rows[i] == i) continue;
    LS_CHECK_LT(static_cast<size_t>(num_moves), moves.size());
    moves[num_moves++] = {walk.rows[i], i};
  }
  return num_moves;
}

}  // namespace lockstep::step
