// What a plain step costs, by the number of requests in it and their context: a line a + b x context through the last
// measurements, and a lower bound of it.
//
// The bound is what the ledger credits: a drafter must not live on an estimate that was luckily high. Between
// measurements the machine may change; a run of samples far below the line throws the older ones away.
//
// Units:   seconds; context in tokens, of all requests together
// Threads: one caller an object
// Cost:    Add sorts a window of 64; the rest O(1)
// Source:  least squares; Student's t, one-sided 95 %
#pragma once

#include <map>
#include <vector>

namespace lockstep::spec {

// Samples a line is drawn through. At 10 % noise the bound lies 2 % below the line, and in plain decoding a window lasts
// a few seconds.
inline constexpr int kPlainWindow = 64;
// A line of fewer says nothing about its own error.
inline constexpr int kPlainMinSamples = 4;

class PlainTime {
 public:
  void Add(int num_requests, double context, double secs);
  bool Known(int num_requests) const;
  bool Full(int num_requests) const;  // as many samples as it holds
  // Requires: Known(num_requests).
  double Mean(int num_requests, double context) const;
  // One-sided 95 % bound of Mean; above 0.
  double Lower(int num_requests, double context) const;

 private:
  struct Sample {
    double context, secs;
  };
  struct Line {
    std::vector<Sample> window;  // oldest first, at most kPlainWindow
    double mean_context = 0, mean_secs = 0, slope = 0;
    double context_spread = 0;  // sum of squared distances from mean_context
    double sigma = 0;           // of a sample about the line
    double t = 0;               // Student's factor

    void Fit();
  };
  const Line& Of(int num_requests) const;

  std::map<int, Line> lines_;
};

}  // namespace lockstep::spec
