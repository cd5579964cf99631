#include "spec/plain_time.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace lockstep::spec {
namespace {

// A sample above so many medians is counted as that: a hiccup is the machine's, and too low an estimate is safe.
constexpr double kClipMedians = 1.5;
// So many samples in a row below the line by this share: the machine became faster, the older ones say nothing.
constexpr int kRecent = 4;
constexpr double kFasterShare = 0.85;
// A line through contexts that differ by less than this is no line.
constexpr double kMinContextSpread = 16.0;

double Median(std::vector<double> v) {
  auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

// One-sided 95 % of Student's distribution; within 0.02 from 2 degrees on, and too low for one, which is not used.
double StudentT(int degrees) {
  return 1.645 + 1.5 / degrees + 2.1 / (double(degrees) * degrees);
}

}  // namespace

void PlainTime::Line::Fit() {
  const auto n = static_cast<double>(window.size());
  std::vector<double> secs;
  for (const Sample& s : window) secs.push_back(s.secs);
  const double most = kClipMedians * Median(secs);
  mean_context = mean_secs = context_spread = slope = 0;
  for (const Sample& s : window) {
    mean_context += s.context / n;
    mean_secs += std::min(s.secs, most) / n;
  }
  double covariance = 0;
  for (const Sample& s : window) {
    context_spread += (s.context - mean_context) * (s.context - mean_context);
    covariance += (s.context - mean_context) * (std::min(s.secs, most) - mean_secs);
  }
  const bool sloped = context_spread > kMinContextSpread * kMinContextSpread * n / 12;
  if (sloped) slope = covariance / context_spread;
  double squares = 0;
  for (const Sample& s : window) {
    const double error = std::min(s.secs, most) - mean_secs - slope * (s.context - mean_context);
    squares += error * error;
  }
  const int degrees = std::max(1, static_cast<int>(window.size()) - (sloped ? 2 : 1));
  sigma = std::sqrt(squares / degrees);
  t = StudentT(degrees);
  if (!sloped) context_spread = 0;
}

void PlainTime::Add(int num_requests, double context, double secs) {
  LS_CHECK(num_requests > 0 && context >= 0 && secs >= 0);
  Line& line = lines_[num_requests];
  if (line.window.size() >= kPlainWindow) line.window.erase(line.window.begin());
  const bool had_line = static_cast<int>(line.window.size()) >= 2 * kRecent;
  line.window.push_back({context, secs});
  if (had_line) {
    const bool faster = std::all_of(line.window.end() - kRecent, line.window.end(), [&](const Sample& s) {
      return s.secs < kFasterShare * std::max(Mean(num_requests, s.context), Lower(num_requests, s.context));
    });
    if (faster) line.window.erase(line.window.begin(), line.window.end() - kRecent);
  }
  line.Fit();
}

const PlainTime::Line& PlainTime::Of(int num_requests) const {
  LS_CHECK(Known(num_requests));
  return lines_.at(num_requests);
}

bool PlainTime::Known(int num_requests) const {
  auto it = lines_.find(num_requests);
  return it != lines_.end() && static_cast<int>(it->second.window.size()) >= kPlainMinSamples;
}

bool PlainTime::Full(int num_requests) const {
  auto it = lines_.find(num_requests);
  return it != lines_.end() && static_cast<int>(it->second.window.size()) >= kPlainWindow;
}

double PlainTime::Mean(int num_requests, double context) const {
  const Line& line = Of(num_requests);
  const double on_line = line.mean_secs + line.slope * (context - line.mean_context);
  // A step of more context never costs less, and one of less context at least its share: bounds for a line that is
  // extended far.
  const double share = line.mean_context > 0 ? std::min(1.0, context / line.mean_context) : 1.0;
  return std::max(on_line, line.mean_secs * share);
}

double PlainTime::Lower(int num_requests, double context) const {
  const Line& line = Of(num_requests);
  const double n = static_cast<double>(line.window.size());
  const double at_mean = std::max(0.0, line.mean_secs - line.t * line.sigma / std::sqrt(n));
  double variance = 1 / n;
  const double distance = context - line.mean_context;
  if (line.context_spread > 0) variance += distance * distance / line.context_spread;
  const double on_line = line.mean_secs + line.slope * distance - line.t * line.sigma * std::sqrt(variance);
  const double share = line.mean_context > 0 ? std::min(1.0, context / line.mean_context) : 1.0;
  return std::max({on_line, at_mean * share, 1e-9});
}

}  // namespace lockstep::spec
