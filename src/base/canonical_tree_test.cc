#include "base/canonical_tree.h"

#include <gtest/gtest.h>

#include <functional>

namespace lockstep {
namespace {

// Evaluates a program symbolically, so that two orders can be compared as text.
std::string Evaluate(const TreeProgram& program, const std::function<std::string(int)>& value) {
  std::vector<std::string> stack;
  for (int i = 0; i < program.num_values(); ++i) {
    stack.push_back(value(i));
    for (int m = 0; m < program.merges_after[i]; ++m) {
      std::string upper = stack.back();
      stack.pop_back();
      stack.back() = "(" + stack.back() + "+" + upper + ")";
    }
  }
  EXPECT_EQ(stack.size(), 1u);
  return stack.back();
}

TEST(CanonicalTree, NineHeadsAreEightLeavesTheLargerHalfFirst) {
  CanonicalTree tree(9);
  ASSERT_EQ(tree.leaves().size(), 8u);
  EXPECT_EQ(tree.leaves()[0], (UnitRange{0, 2}));
  EXPECT_EQ(tree.leaves()[7], (UnitRange{8, 9}));
  auto shares = tree.Share(2);
  ASSERT_TRUE(shares.ok());
  EXPECT_EQ((*shares)[0].units, (UnitRange{0, 5}));
  EXPECT_EQ((*shares)[1].units, (UnitRange{5, 9}));
  EXPECT_EQ((*shares)[0].subtrees.size(), 1u);
}

TEST(CanonicalTree, EveryWorldSizeAddsInTheSameOrder) {
  for (int units = 1; units <= 70; ++units) {
    CanonicalTree tree(units);
    auto leaf = [](int i) { return std::to_string(i); };
    std::string whole = Evaluate(tree.Program(), leaf);
    for (int world = 1; world <= 8; ++world) {
      auto shares = tree.Share(world);
      if (world > static_cast<int>(tree.leaves().size())) {
        EXPECT_FALSE(shares.ok());
        continue;
      }
      ASSERT_TRUE(shares.ok()) << units << " units, " << world << " ranks: " << shares.status().message();
      std::vector<std::string> partials;
      int next_leaf = 0;
      for (const TreeShare& share : *shares) {
        EXPECT_EQ(share.leaves.begin, next_leaf);
        next_leaf = share.leaves.end;
        EXPECT_EQ(share.first_partial, static_cast<int>(partials.size()));
        EXPECT_LE(share.subtrees.size(), 3u);
        bool power_of_two = (world & (world - 1)) == 0;
        if (power_of_two && tree.leaves().size() == 8) {
          EXPECT_EQ(share.subtrees.size(), 1u);
        }
        for (const auto& subtree : share.subtrees) {
          partials.push_back(Evaluate(subtree.program, [&](int i) { return std::to_string(subtree.first_leaf + i); }));
        }
      }
      EXPECT_EQ(next_leaf, static_cast<int>(tree.leaves().size()));
      EXPECT_EQ(Evaluate(tree.TopProgram(*shares), [&](int i) { return partials[i]; }), whole)
          << units << " units, " << world << " ranks";
    }
  }
}

TEST(CanonicalTree, SharesAreEvenWhereTheTreeAllowsIt) {
  auto shares = CanonicalTree(9).Share(3);
  ASSERT_TRUE(shares.ok());
  for (const TreeShare& share : *shares) EXPECT_EQ(share.units.count(), 3);
}

}  // namespace
}  // namespace lockstep
