// How often a drafter's tokens are accepted: by depth, and against the probabilities that it claims.
//
// A drafter's own probabilities rank its tokens; how far they can be believed is measured. Claims are binned, and each bin
// has a ratio accepted / claimed; all bins shrink towards the drafter's ratio over all claims, and that towards 1: a new
// drafter is believed. A request has one ratio more, on top of those, for a drafter that suits one text and not the next.
//
// Units:   counts that fade, so that a change is seen
// Threads: one caller an object
// Cost:    O(1) a node
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "step/accept_walk.h"

namespace lockstep::spec {

// Depths that are told apart; deeper ones count with the last.
inline constexpr int kMaxReportedDepth = 16;

// A drafter's acceptance over all requests, or within one.
class Acceptance {
 public:
  // One proposal that was verified. tree: the rows that were verified, claimed [num_rows] the drafter's probability of
  // each to be accepted if its parent is, path: the accepted rows behind the root.
  void Add(const step::DraftTree& tree, const std::vector<float>& claimed, const std::vector<int32_t>& path);
  // A drafter ran, and rows of it were verified or none was worth it.
  void AddProposal(bool used);

  // The chance that a token is accepted of which the drafter claims `claimed`, if its parent is accepted.
  double Calibrated(double claimed) const;
  // The most that any claim comes to.
  double MostCalibrated() const;
  // Accepted at this depth or deeper / rounds that drafted so deep, where the depths before were accepted; a guess where
  // nothing was drafted. depth from 1.
  double Conditional(int depth) const;
  double used_rate() const;  // share of proposals with rows that were verified

 private:
  static constexpr int kNumBins = 8;
  struct Count {
    double weight = 0;  // claims, or tries
    double accepted = 0;
    void Add(double w, bool a, double keep) {
      weight = weight * keep + w;
      accepted = accepted * keep + (a ? 1 : 0);
    }
  };
  static int Bin(double claimed);
  double Ratio(int bin) const;

  std::array<Count, kNumBins> bins_;
  Count all_;
  std::array<Count, kMaxReportedDepth + 1> depths_;
  Count proposals_;
};

// Of one request: how much better or worse than usual a drafter does on it.
class RequestAcceptance {
 public:
  // calibrated: Acceptance::Calibrated of the children of one accepted row together; whether one of them was accepted.
  void Add(double calibrated, bool accepted);
  double Ratio() const;

 private:
  double expected_ = 0;
  double accepted_ = 0;
};

}  // namespace lockstep::spec
