#include "trace/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>

#include "trace/ticks.h"

namespace lockstep::trace {

std::vector<Span> SpanRing::Spans() const {
  std::vector<Span> kept;
  const uint64_t count = std::min<uint64_t>(num_recorded_, spans_.size());
  kept.reserve(count);
  for (uint64_t i = num_recorded_ - count; i < num_recorded_; ++i) {
    kept.push_back(spans_[i % spans_.size()]);
  }
  return kept;
}

std::string ChromeTraceJson(const std::vector<const SpanRing*>& rings) {
  uint64_t origin = std::numeric_limits<uint64_t>::max();
  std::vector<std::vector<Span>> spans;
  for (const SpanRing* ring : rings) {
    spans.push_back(ring->Spans());
    for (const Span& span : spans.back()) origin = std::min(origin, span.begin_ticks);
  }
  const double us_per_tick = NsPerTick() * 1e-3;
  // Written by hand: the names are literals of ours without quotes, and a trace may hold a million spans.
  std::string json = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  const char* separator = "\n";
  for (size_t r = 0; r < rings.size(); ++r) {
    for (const Span& span : spans[r]) {
      fmt::format_to(std::back_inserter(json),
                     "{}{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}}}", separator,
                     span.name, rings[r]->rank(), rings[r]->thread(),
                     static_cast<double>(span.begin_ticks - origin) * us_per_tick,
                     static_cast<double>(span.end_ticks - span.begin_ticks) * us_per_tick);
      separator = ",\n";
    }
  }
  json += "\n]}\n";
  return json;
}

Status WriteChromeTrace(const std::string& path, const std::vector<const SpanRing*>& rings) {
  const std::string json = ChromeTraceJson(rings);
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return InvalidArgument(fmt::format("cannot write the trace {}: {}", path, std::strerror(errno)));
  }
  const bool written = std::fwrite(json.data(), 1, json.size(), file) == json.size();
  const int error = errno;
  if (std::fclose(file) != 0 || !written) {
    return InvalidArgument(fmt::format("cannot write the trace {}: {}", path, std::strerror(error)));
  }
  return OkStatus();
}

}  // namespace lockstep::trace
