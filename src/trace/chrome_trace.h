// Spans in a bounded ring, written as a Chrome trace (chrome://tracing, Perfetto).
//
// Units:    ticks inside, microseconds in the file
// Errors:   kInvalidArgument  the file cannot be written
// Threads:  one ring a thread; the writer runs while no thread records
// Capture:  the constructor and WriteChromeTrace: Prepare; Record: Run (no allocation; the oldest span is overwritten)
// Cost:     Record stores 24 bytes
// Source:   Chrome's Trace Event Format, "X" (complete) events
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::trace {

struct Span {
  const char* name = nullptr;  // a literal
  uint64_t begin_ticks = 0;
  uint64_t end_ticks = 0;
};

class SpanRing {
 public:
  // rank and thread become the process and thread of the trace.
  SpanRing(int rank, int thread, size_t capacity) : rank_(rank), thread_(thread), spans_(capacity > 0 ? capacity : 1) {}

  void Record(const char* name, uint64_t begin_ticks, uint64_t end_ticks) {
    spans_[num_recorded_++ % spans_.size()] = {name, begin_ticks, end_ticks};
  }

  int rank() const { return rank_; }
  int thread() const { return thread_; }
  uint64_t num_recorded() const { return num_recorded_; }  // those overwritten included
  std::vector<Span> Spans() const;                         // the kept ones, oldest first

 private:
  int rank_, thread_;
  uint64_t num_recorded_ = 0;
  std::vector<Span> spans_;
};

// Time 0 is the earliest span of all rings.
std::string ChromeTraceJson(const std::vector<const SpanRing*>& rings);
Status WriteChromeTrace(const std::string& path, const std::vector<const SpanRing*>& rings);

}  // namespace lockstep::trace
