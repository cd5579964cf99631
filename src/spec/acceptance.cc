#include "spec/acceptance.h"

#include <algorithm>
#include <cmath>

namespace lockstep::spec {
namespace {

// What a count keeps at each new one: over all requests it remembers about 256 claims, within a request about 32.
constexpr double kKeepGlobal = 1 - 1.0 / 256;
constexpr double kKeepRequest = 1 - 1.0 / 32;
// Claims that a prior is worth. A drafter that is always wrong is believed to a tenth after 18 of its tokens.
constexpr double kPriorClaims = 2;
constexpr double kPriorRequest = 4;
// Nothing is certain: a sure claim would make rows free.
constexpr double kMostSure = 0.995;
// Before anything was drafted at a depth: as good as an ordinary drafter.
constexpr double kGuess = 0.6;
// Where bins of claims end; finer where a row is worth its cost or not.
constexpr double kBinEnds[] = {0.1, 0.3, 0.5, 0.65, 0.8, 0.9, 0.96, 1.0};

}  // namespace

int Acceptance::Bin(double claimed) {
  return static_cast<int>(std::upper_bound(std::begin(kBinEnds), std::end(kBinEnds) - 1, claimed) -
                          std::begin(kBinEnds));
}

double Acceptance::Ratio(int bin) const {
  const double overall = (all_.accepted + kPriorClaims) / (all_.weight + kPriorClaims);
  const Count& count = bins_[static_cast<size_t>(bin)];
  return (count.accepted + kPriorClaims * overall) / (count.weight + kPriorClaims);
}

void Acceptance::Add(const step::DraftTree& tree, const std::vector<float>& claimed, const std::vector<int32_t>& path) {
  int parent = 0;
  for (int depth = 1;; ++depth) {
    const int accepted = depth <= static_cast<int>(path.size()) ? path[static_cast<size_t>(depth - 1)] : -1;
    bool any = false;
    for (int row = parent + 1; row < tree.num_rows(); ++row) {
      if (tree.parents[row] != parent) continue;
      any = true;
      const double claim = claimed[static_cast<size_t>(row)];
      bins_[static_cast<size_t>(Bin(claim))].Add(claim, row == accepted, kKeepGlobal);
      all_.Add(claim, row == accepted, kKeepGlobal);
    }
    if (!any) return;
    depths_[static_cast<size_t>(std::min(depth, kMaxReportedDepth))].Add(1, accepted >= 0, kKeepGlobal);
    if (accepted < 0) return;
    parent = accepted;
  }
}

void Acceptance::AddProposal(bool used) {
  proposals_.Add(1, used, kKeepRequest);
}

double Acceptance::Calibrated(double claimed) const {
  return std::min(claimed * Ratio(Bin(claimed)), kMostSure);
}

double Acceptance::MostCalibrated() const {
  double most = 0;
  for (int bin = 0; bin < kNumBins; ++bin) most = std::max(most, kBinEnds[bin] * Ratio(bin));
  return std::min(most, kMostSure);
}

double Acceptance::Conditional(int depth) const {
  double before = kGuess;
  for (int d = 1; d <= std::min(depth, kMaxReportedDepth); ++d) {
    const Count& count = depths_[static_cast<size_t>(d)];
    before = (count.accepted + kPriorClaims * before) / (count.weight + kPriorClaims);
  }
  return before;
}

double Acceptance::used_rate() const {
  return (proposals_.accepted + kPriorClaims) / (proposals_.weight + kPriorClaims);
}

void RequestAcceptance::Add(double calibrated, bool accepted) {
  expected_ = expected_ * kKeepRequest + calibrated;
  accepted_ = accepted_ * kKeepRequest + (accepted ? 1 : 0);
}

double RequestAcceptance::Ratio() const {
  return (accepted_ + kPriorRequest) / (expected_ + kPriorRequest);
}

}  // namespace lockstep::spec
