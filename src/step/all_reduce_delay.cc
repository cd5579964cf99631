#include "step/all_reduce_delay.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "trace/ticks.h"

namespace lockstep::step {
namespace {

template <typename T>
bool ReadWhole(std::string_view text, T* value) {
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && rest == text.data() + text.size();
}

double DelayUs(const std::vector<AllReduceDelay>& points, int rows) {
  const auto above =
      std::find_if(points.begin(), points.end(), [rows](const AllReduceDelay& p) { return p.rows >= rows; });
  if (above == points.end()) return points.back().us;
  if (above == points.begin()) return above->us;
  const AllReduceDelay& below = *(above - 1);
  return below.us + (above->us - below.us) * (rows - below.rows) / (above->rows - below.rows);
}

}  // namespace

Result<std::vector<AllReduceDelay>> ParseAllReduceDelays(const std::string& text) {
  const Status bad = InvalidArgument(fmt::format(
      "--emulate-allreduce-us {}: must be ROWS:US,... with ascending rows, or US for all widths; US from 0 to {}", text,
      kMaxAllReduceDelayUs));
  std::vector<AllReduceDelay> points;
  if (text.find_first_of(":,") == std::string::npos) {
    points.push_back({1, 0});
    if (!ReadWhole(std::string_view(text), &points[0].us)) return bad;
  } else {
    size_t begin = 0;
    while (begin <= text.size()) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const std::string_view point = std::string_view(text).substr(begin, end - begin);
      const size_t colon = point.find(':');
      AllReduceDelay read = {};
      if (colon == std::string_view::npos || !ReadWhole(point.substr(0, colon), &read.rows) ||
          !ReadWhole(point.substr(colon + 1), &read.us) || read.rows < 1 ||
          (!points.empty() && read.rows <= points.back().rows)) {
        return bad;
      }
      points.push_back(read);
      begin = end + 1;
    }
  }
  for (const AllReduceDelay& p : points) {
    if (!(p.us >= 0 && p.us <= kMaxAllReduceDelayUs)) return bad;
  }
  return points;
}

std::vector<uint64_t> AllReduceDelayTicks(const std::vector<AllReduceDelay>& points, int max_rows) {
  if (points.empty()) return {};
  std::vector<uint64_t> ticks;
  for (int rows = 0; rows <= max_rows; ++rows)
    ticks.push_back(static_cast<uint64_t>(std::llround(DelayUs(points, rows) * 1e3 / trace::NsPerTick())));
  return ticks;
}

}  // namespace lockstep::step
