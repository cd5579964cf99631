// The canonical tree: the one order in which partial sums over the K dimension of a row-parallel matmul are added
// (docs/numerics.md, 3 and 4), and how ranks share its leaves.
//
// Units:   a unit is the smallest piece of K that may stand alone: a group of query heads or a block of 32 of F
// Order:   recursive bisection, the larger half first, at most 8 leaves; leaves are summed by that same binary tree
// Errors:  kInvalidArgument  more ranks than leaves, or ranks that would need more than three subtrees
// Threads: values
// Cost:    a build is a few hundred operations; done when a model is loaded
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep {

struct UnitRange {
  int begin = 0;
  int end = 0;
  int count() const { return end - begin; }
  bool operator==(const UnitRange&) const = default;
};

// A binary tree in postfix form: push the values in order; after pushing value i, merge the two topmost partial sums
// (lower + upper) merges_after[i] times. One partial sum is left.
struct TreeProgram {
  std::vector<int> merges_after;
  int num_values() const { return static_cast<int>(merges_after.size()); }
};

// One rank's share: consecutive leaves, which form at most three maximal subtrees. Each subtree's partial sum is
// computed inside the rank by `program` and crosses to the others as one value.
struct TreeShare {
  struct Subtree {
    int first_leaf = 0;
    TreeProgram program;  // over the leaves of the subtree
  };
  UnitRange leaves;               // consecutive leaf indices
  UnitRange units;                // the units that they cover
  std::vector<Subtree> subtrees;  // 1 to 3
  int first_partial = 0;          // index of subtrees[0] among the partials of all ranks
};

class CanonicalTree {
 public:
  static constexpr int kMaxLeaves = 8;
  static constexpr int kMaxSubtreesPerRank = 3;

  // num_units >= 1.
  explicit CanonicalTree(int num_units);

  const std::vector<UnitRange>& leaves() const { return leaves_; }
  // The whole tree over all leaves.
  TreeProgram Program() const { return ProgramOf(0); }

  // Cuts the leaves into world_size consecutive shares: the least largest share in units, then the fewest subtrees,
  // then the earlier ranks the larger ones.
  Result<std::vector<TreeShare>> Share(int world_size) const;

  // The tree that is left above the shares: sums the partials of all ranks, in order of first_partial. A share may be
  // empty.
  TreeProgram TopProgram(const std::vector<TreeShare>& shares) const;

 private:
  struct Node {
    int first_leaf, end_leaf;  // the leaves below
    int left = -1, right = -1;
  };
  int Build(int unit_begin, int unit_end, int leaf_budget);
  TreeProgram ProgramOf(int node) const;
  void AppendProgram(int node, const std::vector<int>& stop_nodes, TreeProgram* program) const;
  // The maximal subtrees inside leaves [begin, end), left to right, as node indices.
  void Cover(int node, int begin, int end, std::vector<int>* nodes) const;

  std::vector<Node> nodes_;  // nodes_[0] is the root
  std::vector<UnitRange> leaves_;
};

}  // namespace lockstep
