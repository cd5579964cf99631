#include "base/canonical_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace lockstep {

CanonicalTree::CanonicalTree(int num_units) {
  LS_CHECK_GE(num_units, 1);
  Build(0, num_units, kMaxLeaves);
}

int CanonicalTree::Build(int unit_begin, int unit_end, int leaf_budget) {
  int index = static_cast<int>(nodes_.size());
  nodes_.push_back({static_cast<int>(leaves_.size()), 0});
  int units = unit_end - unit_begin;
  if (units == 1 || leaf_budget == 1) {
    leaves_.push_back({unit_begin, unit_end});
  } else {
    int middle = unit_begin + (units + 1) / 2;  // the larger half first
    int left = Build(unit_begin, middle, leaf_budget / 2);
    int right = Build(middle, unit_end, leaf_budget / 2);
    nodes_[index].left = left;
    nodes_[index].right = right;
  }
  nodes_[index].end_leaf = static_cast<int>(leaves_.size());
  return index;
}

void CanonicalTree::AppendProgram(int node, const std::vector<int>& stop_nodes, TreeProgram* program) const {
  bool stop = std::find(stop_nodes.begin(), stop_nodes.end(), node) != stop_nodes.end();
  if (stop || nodes_[node].left < 0) {
    program->merges_after.push_back(0);
    return;
  }
  AppendProgram(nodes_[node].left, stop_nodes, program);
  AppendProgram(nodes_[node].right, stop_nodes, program);
  ++program->merges_after.back();
}

TreeProgram CanonicalTree::ProgramOf(int node) const {
  TreeProgram program;
  AppendProgram(node, {}, &program);
  return program;
}

void CanonicalTree::Cover(int node, int begin, int end, std::vector<int>* nodes) const {
  const Node& n = nodes_[node];
  if (n.end_leaf <= begin || n.first_leaf >= end) return;
  if (begin <= n.first_leaf && n.end_leaf <= end) {
    nodes->push_back(node);
    return;
  }
  Cover(n.left, begin, end, nodes);
  Cover(n.right, begin, end, nodes);
}

Result<std::vector<TreeShare>> CanonicalTree::Share(int world_size) const {
  int num_leaves = static_cast<int>(leaves_.size());
  LS_CHECK_GE(world_size, 1);
  if (world_size > num_leaves) {
    return InvalidArgument(fmt::format("{} ranks, but only {} pieces to share", world_size, num_leaves));
  }
  // best[w][e]: the best way to give leaves [0, e) to w ranks; cost is (largest share, subtrees in all).
  struct Cost {
    int largest = std::numeric_limits<int>::max();
    int subtrees = std::numeric_limits<int>::max();
    int begin = -1;  // where the last rank's leaves begin
    bool operator<(const Cost& o) const { return largest != o.largest ? largest < o.largest : subtrees < o.subtrees; }
  };
  std::array<std::array<Cost, kMaxLeaves + 1>, kMaxLeaves + 1> best{};
  best[0][0] = {0, 0, 0};
  for (int w = 1; w <= world_size; ++w) {
    for (int end = w; end <= num_leaves; ++end) {
      for (int begin = end - 1; begin >= w - 1; --begin) {
        const Cost& before = best[w - 1][begin];
        if (before.begin < 0) continue;
        std::vector<int> cover;
        Cover(0, begin, end, &cover);
        if (static_cast<int>(cover.size()) > kMaxSubtreesPerRank) continue;
        int units = leaves_[end - 1].end - leaves_[begin].begin;
        Cost cost{std::max(before.largest, units), before.subtrees + static_cast<int>(cover.size()), begin};
        if (cost < best[w][end]) best[w][end] = cost;
      }
    }
  }
  if (best[world_size][num_leaves].begin < 0) {
    return InvalidArgument(fmt::format("{} pieces cannot be shared by {} ranks", num_leaves, world_size));
  }
  std::vector<TreeShare> shares(world_size);
  for (int w = world_size, end = num_leaves; w > 0; --w) {
    int begin = best[w][end].begin;
    shares[w - 1].leaves = {begin, end};
    end = begin;
  }
  int next_partial = 0;
  for (TreeShare& share : shares) {
    share.units = {leaves_[share.leaves.begin].begin, leaves_[share.leaves.end - 1].end};
    share.first_partial = next_partial;
    std::vector<int> cover;
    Cover(0, share.leaves.begin, share.leaves.end, &cover);
    for (int node : cover) share.subtrees.push_back({nodes_[node].first_leaf, ProgramOf(node)});
    next_partial += static_cast<int>(cover.size());
  }
  return shares;
}

TreeProgram CanonicalTree::TopProgram(const std::vector<TreeShare>& shares) const {
  std::vector<int> stops;
  for (const TreeShare& share : shares) {
    if (share.leaves.count() > 0) Cover(0, share.leaves.begin, share.leaves.end, &stops);
  }
  TreeProgram program;
  AppendProgram(0, stops, &program);
  return program;
}

}  // namespace lockstep
