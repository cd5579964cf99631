// The draft tree, and the walk that turns the target's samples at its rows into a round's tokens.
//
// Row 0 is the last committed token; rows 1 .. num_nodes are draft tokens, a parent before its children. The target is
// sampled at every row with that position's own noise. The walk emits the sample of row 0, goes to the child that holds
// it, and repeats. Each emitted token is the target's own sample after the tokens before it, so a tree, good or bad,
// changes how many tokens a round emits and never which. A round emits at least one.
//
// Shapes:  parents, tokens, sampled [1 + num_nodes], by row
// Errors:  kInvalidArgument  too many rows, a parent that is no earlier row, an unknown token
// Threads: values without pointers, so they may lie in memory that ranks share
// Capture: Walk and the compaction list: no allocation
// Source:  the coupling of docs/speculation.md: sample the target, follow the child that agrees
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "base/status.h"

namespace lockstep::step {

// The widest tree of one sequence, the root's row included.
inline constexpr int kMaxTreeRows = 256;
inline constexpr int kMaxTreeNodes = kMaxTreeRows - 1;

struct DraftTree {
  int32_t num_nodes = 0;                 // draft nodes; the root row is not one
  int32_t parents[kMaxTreeRows] = {-1};  // row of the parent, below the own row; -1 for row 0 only
  int32_t tokens[kMaxTreeRows] = {0};    // tokens[0] is the last committed token

  int num_rows() const { return num_nodes + 1; }
  // Leaves the root row alone.
  void Reset(int32_t root_token);
  // Appends a node and returns its row. Requires: room, and 0 <= parent_row < num_rows().
  int Add(int parent_row, int32_t token);
  // The row of parent_row's first child that holds `token`, or -1.
  int FindChild(int parent_row, int32_t token) const;
  // Nodes on the way from the root to `row`; 0 for row 0. A row's token stands `depth` positions after the root's.
  int Depth(int row) const;
  // Writes the tokens of `row`'s draft ancestors and its own, oldest first, the root's not included; returns how many.
  // Requires: path has room for Depth(row).
  int PathTokens(int row, std::span<int32_t> path) const;
  // True if each row's parent is the row before it.
  bool IsChain() const;
};
static_assert(std::is_trivially_copyable_v<DraftTree>);

Status ValidateTree(const DraftTree& tree, int vocab);

struct KvMove {
  int32_t from_row;
  int32_t to_row;
  bool operator==(const KvMove&) const = default;
};

struct WalkResult {
  int32_t num_emitted = 0;       // tokens of the round; 0 only if row 0 failed
  int32_t failed_row = -1;       // where the walk ended for want of a sample (non-finite logits)
  int32_t rows[kMaxTreeRows];    // [num_emitted] the path: rows[0] = 0, then accepted draft rows
  int32_t tokens[kMaxTreeRows];  // [num_emitted] tokens[i] is the target's sample at rows[i]

  // Draft tokens that the target agreed with: all emitted ones but the last, which no row holds.
  int num_accepted() const { return num_emitted > 0 ? num_emitted - 1 : 0; }
  // Ends the round after `num_tokens` of its tokens: EOS, a stop or a limit was reached there.
  void Truncate(int num_tokens);
};
static_assert(std::is_trivially_copyable_v<WalkResult>);

// sampled[row] is the target's token at that row, -1 where its logits were not finite. Of siblings with the same token
// the first wins; the others are never on a path. Requires: a valid tree, sampled.size() >= num_rows().
WalkResult Walk(const DraftTree& tree, std::span<const int32_t> sampled);

// The copies that bring the kv of the path to the first num_emitted slots of the round, in the order to make them: a
// source is never below its target, and sources rise, so no copy overwrites one that is still to be read. Empty for a
// chain, and whenever the path already lies in the first rows. Returns how many; moves has room for num_emitted.
int CompactionMoves(const WalkResult& walk, std::span<KvMove> moves);

}  // namespace lockstep::step
