// What rounds have cost here: by requests, rows and context; and what proposals have cost, by drafter.
//
// Predicted: the median of the last 16. Worst: what the ledger asks for before a round starts, the larger of 1.25 x
// predicted and the third largest of the last 64, so that one hiccup cannot shut a shape for good. Rows that were not
// measured yet lie between those that Prepare timed.
//
// Units:   seconds; rows of all requests in the step; context in tokens of all requests
// Threads: one caller an object
// Cost:    Add sorts 64; the rest a look-up
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "spec/plain_time.h"

namespace lockstep::spec {

inline constexpr int kMedianOf = 16;
inline constexpr int kWorstOf = 64;
inline constexpr double kWorstOverPredicted = 1.25;

// The last measurements of one thing.
class TimeRing {
 public:
  void Add(double secs);
  bool empty() const { return num_ == 0; }
  int64_t num() const { return num_; }
  double median() const { return median_; }                // of the last 16
  double third_largest() const { return third_largest_; }  // of the last 64; 0 while there are fewer than three

 private:
  std::array<double, kWorstOf> last_{};
  int64_t num_ = 0;
  double median_ = 0;
  double third_largest_ = 0;
};

class CostTable {
 public:
  // Prepare's time for a step of so many rows of one request with an empty context.
  void AddPrepared(int rows, double secs);
  // A round's step and commit, proposals left out.
  void Add(int num_requests, int rows, double context, double secs, const PlainTime& plain);
  void AddDraft(int drafter, double secs);

  // Step and commit of so many rows. Requires: plain.Known(num_requests).
  double Predict(int num_requests, int rows, double context, const PlainTime& plain) const;
  // The same, at the worst, after draft_secs of proposals.
  double Worst(int num_requests, int rows, double context, double draft_secs, const PlainTime& plain) const;
  double PredictDraft(int drafter) const;  // 0 while unknown

  // Widest step that Prepare timed; 0 before.
  int max_prepared_rows() const { return prepared_.empty() ? 0 : prepared_.rbegin()->first; }
  // Prepare's time, between two of its rows by interpolation. Requires: rows <= max_prepared_rows().
  double Prepared(int rows) const;
  int64_t num_measured(int num_requests, int rows, double context) const;

 private:
  struct Entry {
    int bucket = 0;  // of context
    TimeRing ring;
    double context = 0;  // of the last measurement
  };
  // That of the bucket nearest to this one, the lower of two; null if the shape was never measured.
  const Entry* Nearest(int num_requests, int rows, int bucket) const;
  double FromPrepared(int num_requests, int rows, double plain_here) const;
  double Promised(int num_requests, int rows, double plain_here) const;

  std::map<int, double> prepared_;
  TimeRing over_prepared_;  // measured / what Prepare had promised, of all shapes: corrects shapes without measurements
  std::map<std::pair<int, int>, std::vector<Entry>> entries_;  // by requests and rows
  std::map<int, TimeRing> drafts_;
};

// 0 below 256 tokens, then one for each doubling.
int ContextBucket(double context);
inline constexpr int kNumContextBuckets = 16;

}  // namespace lockstep::spec
