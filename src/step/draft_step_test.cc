// The members' best tokens become one list, whoever held which.
#include "step/draft_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace lockstep::step {
namespace {

// What a member leaves of its part, z by token; tokens from `first` on.
DraftPart PartOf(const std::vector<float>& z, int first, int count) {
  DraftPart part = {};
  part.largest = -INFINITY;
  std::vector<int> order;
  for (int i = first; i < first + count; ++i) {
    part.largest = std::max(part.largest, z[size_t(i)]);
    order.push_back(i);
  }
  for (int i : order) part.sum_exp += std::exp(z[size_t(i)] - part.largest);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return z[size_t(a)] > z[size_t(b)]; });
  part.num = std::min(count, kDraftTopK);
  for (int i = 0; i < part.num; ++i) part.best[i] = {z[size_t(order[size_t(i)])], order[size_t(i)]};
  return part;
}

std::vector<DraftCandidate> Merge(const std::vector<DraftPart>& parts, bool sampled, int wanted = kDraftTopK) {
  std::vector<const DraftPart*> pointers;
  for (const DraftPart& part : parts) pointers.push_back(&part);
  std::vector<DraftCandidate> out(static_cast<size_t>(wanted));
  out.resize(size_t(MergeParts(pointers, sampled, out)));
  return out;
}

// Few values, so that many are equal.
std::vector<float> Values(int count, uint32_t seed, int levels) {
  std::mt19937 random(seed);
  std::vector<float> z;
  for (int i = 0; i < count; ++i) z.push_back(float(int(random() % uint32_t(levels))) * 0.5f - 3.0f);
  return z;
}

TEST(MergeParts, LargestFirstAndOfEqualsTheSmallerId) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    for (int levels : {1, 3, 12, 1000}) {
      const std::vector<float> z = Values(100, seed, levels);
      std::vector<int> order(z.size());
      for (size_t i = 0; i < z.size(); ++i) order[i] = int(i);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return z[size_t(a)] > z[size_t(b)]; });
      for (const std::vector<int>& cuts : std::vector<std::vector<int>>{
               {0, 100}, {0, 50, 100}, {0, 3, 10, 97, 100}, {0, 0, 64, 64, 100}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100}}) {
        std::vector<DraftPart> parts;
        for (size_t p = 0; p + 1 < cuts.size(); ++p) parts.push_back(PartOf(z, cuts[p], cuts[p + 1] - cuts[p]));
        std::rotate(parts.begin(), parts.begin() + seed % parts.size(), parts.end());  // whoever holds which
        for (bool sampled : {false, true}) {
          const auto all = Merge(parts, sampled);
          ASSERT_EQ(all.size(), size_t(kDraftTopK));
          for (size_t i = 0; i < all.size(); ++i) {
            ASSERT_EQ(all[i].token, order[i]) << "place " << i << " seed " << seed << " levels " << levels;
            if (i > 0) {
              ASSERT_LE(all[i].probability, all[i - 1].probability);
            }
          }
        }
      }
    }
  }
}

TEST(MergeParts, ProbabilitiesAreThoseOfTheWholeVocabulary) {
  const std::vector<float> z = Values(64, 5, 1000);
  double sum = 0;
  for (float v : z) sum += std::exp(double(v));
  for (int parts : {1, 2, 4}) {
    std::vector<DraftPart> all;
    for (int p = 0; p < parts; ++p) all.push_back(PartOf(z, p * 64 / parts, 64 / parts));
    for (const DraftCandidate& c : Merge(all, false)) {
      EXPECT_NEAR(c.probability, std::exp(double(z[size_t(c.token)])) / sum, 1e-6);
    }
    // With noise drawn: among the best themselves.
    double share = 0;
    for (const DraftCandidate& c : Merge(all, true)) share += c.probability;
    EXPECT_NEAR(share, 1.0, 1e-6);
  }
}

TEST(MergeParts, NoMoreThanAskedFor) {
  const std::vector<float> z = Values(40, 9, 1000);
  const std::vector<DraftPart> parts = {PartOf(z, 0, 20), PartOf(z, 20, 20)};
  const auto all = Merge(parts, false);
  const auto one = Merge(parts, false, 1);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].token, all[0].token);
  EXPECT_EQ(one[0].probability, all[0].probability);  // of the whole vocabulary all the same
}

TEST(MergeParts, FewTokensAndEmptyParts) {
  const std::vector<float> z = {1.0f, 2.0f, 2.0f};
  DraftPart none = {-INFINITY, 0, 0, {}};  // a member without vocabulary
  const auto all = Merge({none, PartOf(z, 0, 3), none}, false);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].token, 1);
  EXPECT_EQ(all[1].token, 2);
  EXPECT_EQ(all[2].token, 0);
  EXPECT_TRUE(Merge({none, none}, false).empty());
  EXPECT_TRUE(Merge({none, none}, true).empty());
}

TEST(MergeParts, ARowThatIsNotFiniteHasNoCandidates) {
  const std::vector<float> z = Values(40, 2, 1000);
  DraftPart bad = {};
  bad.largest = std::numeric_limits<float>::quiet_NaN();
  for (bool sampled : {false, true}) {
    EXPECT_TRUE(Merge({PartOf(z, 0, 20), bad}, sampled).empty());
    EXPECT_TRUE(Merge({bad, PartOf(z, 0, 20)}, sampled).empty());
  }
}

}  // namespace
}  // namespace lockstep::step
