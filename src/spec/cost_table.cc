#include "spec/cost_table.h"

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "base/check.h"

namespace lockstep::spec {

void TimeRing::Add(double secs) {
  last_[static_cast<size_t>(num_ % kWorstOf)] = secs;
  ++num_;
  std::array<double, kWorstOf> v;
  const int held = static_cast<int>(std::min<int64_t>(num_, kWorstOf));
  const int recent = std::min(held, kMedianOf);
  for (int i = 0; i < recent; ++i) v[static_cast<size_t>(i)] = last_[static_cast<size_t>((num_ - 1 - i) % kWorstOf)];
  std::nth_element(v.begin(), v.begin() + recent / 2, v.begin() + recent);
  median_ = v[static_cast<size_t>(recent / 2)];
  if (held < 3) return;
  std::copy_n(last_.begin(), held, v.begin());
  std::nth_element(v.begin(), v.begin() + 2, v.begin() + held, std::greater<>());
  third_largest_ = v[2];
}

int ContextBucket(double context) {
  int bucket = 0;
  for (double end = 256; context >= end && bucket + 1 < kNumContextBuckets; end *= 2) ++bucket;
  return bucket;
}

void CostTable::AddPrepared(int rows, double secs) {
  LS_CHECK(rows > 0 && secs >= 0);
  auto [it, fresh] = prepared_.emplace(rows, secs);
  if (!fresh) it->second = std::min(it->second, secs);
  // More rows never cost less: a hiccup at few rows is seen by what more rows took.
  for (auto wider = prepared_.rbegin(); std::next(wider) != prepared_.rend(); ++wider) {
    std::next(wider)->second = std::min(std::next(wider)->second, wider->second);
  }
}

double CostTable::Prepared(int rows) const {
  auto above = prepared_.lower_bound(rows);
  LS_CHECK(above != prepared_.end());
  if (above->first == rows || above == prepared_.begin()) return above->second;
  auto below = std::prev(above);
  const double share = static_cast<double>(rows - below->first) / (above->first - below->first);
  return below->second + share * (above->second - below->second);
}

void CostTable::Add(int num_requests, int rows, double context, double secs, const PlainTime& plain) {
  over_prepared_.Add(secs / Promised(num_requests, rows, plain.Mean(num_requests, context)));
  std::vector<Entry>& entries = entries_[{num_requests, rows}];
  const int bucket = ContextBucket(context);
  auto entry = std::find_if(entries.begin(), entries.end(), [bucket](const Entry& e) { return e.bucket == bucket; });
  if (entry == entries.end()) entry = entries.insert(entries.end(), Entry{bucket, {}, 0});
  entry->ring.Add(secs);
  entry->context = context;
}

void CostTable::AddDraft(int drafter, double secs) {
  drafts_[drafter].Add(secs);
}

double CostTable::PredictDraft(int drafter) const {
  auto it = drafts_.find(drafter);
  return it == drafts_.end() ? 0 : it->second.median();
}

const CostTable::Entry* CostTable::Nearest(int num_requests, int rows, int bucket) const {
  auto it = entries_.find({num_requests, rows});
  if (it == entries_.end()) return nullptr;
  const Entry* nearest = &it->second.front();
  for (const Entry& e : it->second) {
    const int away = std::abs(e.bucket - bucket), best = std::abs(nearest->bucket - bucket);
    if (away < best || (away == best && e.bucket < nearest->bucket)) nearest = &e;
  }
  return nearest;
}

int64_t CostTable::num_measured(int num_requests, int rows, double context) const {
  const Entry* entry = Nearest(num_requests, rows, ContextBucket(context));
  return entry && entry->bucket == ContextBucket(context) ? entry->ring.num() : 0;
}

double CostTable::Predict(int num_requests, int rows, double context, const PlainTime& plain) const {
  const double plain_here = plain.Mean(num_requests, context);
  if (rows == num_requests) return plain_here;
  // Its own, else that of the nearest context, as far as plain steps differ between the two; else Prepare's.
  const int bucket = ContextBucket(context);
  const Entry* entry = Nearest(num_requests, rows, bucket);
  if (!entry) return FromPrepared(num_requests, rows, plain_here);
  double measured = entry->ring.median();
  if (entry->bucket != bucket) measured *= plain_here / plain.Mean(num_requests, entry->context);
  // One or two measurements may be a hiccup, and a shape that looks dear is not measured again.
  return entry->ring.num() < 3 ? std::min(measured, FromPrepared(num_requests, rows, plain_here)) : measured;
}

double CostTable::FromPrepared(int num_requests, int rows, double plain_here) const {
  return Promised(num_requests, rows, plain_here) * (over_prepared_.num() < 3 ? 1.0 : over_prepared_.median());
}

double CostTable::Promised(int num_requests, int rows, double plain_here) const {
  const int widest = max_prepared_rows();
  if (widest == 0) return plain_here * rows / num_requests;
  const double beyond = rows > widest ? static_cast<double>(rows) / widest : 1.0;
  return plain_here * beyond * Prepared(std::min(rows, widest)) / Prepared(std::min(num_requests, widest));
}

double CostTable::Worst(int num_requests, int rows, double context, double draft_secs, const PlainTime& plain) const {
  const double predicted = kWorstOverPredicted * (draft_secs + Predict(num_requests, rows, context, plain));
  const Entry* entry = Nearest(num_requests, rows, ContextBucket(context));
  const bool here = entry && entry->bucket == ContextBucket(context);
  return here ? std::max(predicted, draft_secs + entry->ring.third_largest()) : predicted;
}

}  // namespace lockstep::spec
