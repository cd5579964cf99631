#include "engine/finish.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::engine {
namespace {

Status CheckIds(const char* field, const std::vector<int32_t>& ids, int vocab) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab)
      return InvalidArgument(fmt::format("{}[{}]: {} is outside the vocabulary of {}", field, i, ids[i], vocab));
  return OkStatus();
}

bool Contains(const std::vector<int32_t>& ids, int32_t token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

// fallback[i]: the longest proper prefix of s[0..i] that is also its suffix.
std::vector<int> Borders(const std::string& s) {
  std::vector<int> fallback(s.size(), 0);
  int k = 0;
  for (size_t i = 1; i < s.size(); ++i) {
    while (k > 0 && s[i] != s[k]) k = fallback[k - 1];
    if (s[i] == s[k]) ++k;
    fallback[i] = k;
  }
  return fallback;
}

}  // namespace

Status ValidateFinish(const FinishOptions& options, int vocab) {
  LS_RETURN_IF_ERROR(CheckIds("eos_ids", options.eos_ids, vocab));
  LS_RETURN_IF_ERROR(CheckIds("stop_token_ids", options.stop_token_ids, vocab));
  if (options.stop_strings.size() > kMaxStopStrings)
    return InvalidArgument(
        fmt::format("stop: {} entries, at most {} allowed", options.stop_strings.size(), kMaxStopStrings));
  for (size_t i = 0; i < options.stop_strings.size(); ++i) {
    const size_t num_bytes = options.stop_strings[i].size();
    if (num_bytes == 0) return InvalidArgument(fmt::format("stop[{}]: is empty", i));
    if (num_bytes > kMaxStopBytes)
      return InvalidArgument(fmt::format("stop[{}]: {} bytes, at most {} allowed", i, num_bytes, kMaxStopBytes));
  }
  if (options.max_tokens < -1) return InvalidArgument(fmt::format("max_tokens: {} is negative", options.max_tokens));
  if (options.context_room < 0)
    return InvalidArgument(fmt::format("context: the prompt is {} tokens too long", -options.context_room));
  return OkStatus();
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
  }
  return "";
}

FinishTracker::FinishTracker(FinishOptions options) : options_(std::move(options)) {
  for (const std::string& stop : options_.stop_strings) patterns_.push_back({stop, Borders(stop), 0});
  limit_ = options_.context_room;
  if (options_.max_tokens >= 0) limit_ = std::min(limit_, options_.max_tokens);
  if (limit_ <= 0) Finish(FinishReason::kLength);
}

void FinishTracker::ReleaseHeld(size_t num_bytes) {
  text_.append(held_, 0, num_bytes);
  held_.erase(0, num_bytes);
}

Verdict FinishTracker::Finish(FinishReason reason) {
  ReleaseHeld(held_.size());
  verdict_ = {true, reason};
  return verdict_;
}

bool FinishTracker::PushByte(char byte) {
  held_.push_back(byte);
  size_t longest_partial = 0;
  const Pattern* complete = nullptr;
  for (Pattern& p : patterns_) {
    int k = p.matched;
    while (k > 0 && p.stop[k] != byte) k = p.fallback[k - 1];
    if (p.stop[k] == byte) ++k;
    p.matched = k;
    if (k == static_cast<int>(p.stop.size())) {
      if (complete == nullptr || p.stop.size() > complete->stop.size()) complete = &p;
    } else {
      longest_partial = std::max(longest_partial, static_cast<size_t>(k));
    }
  }
  if (complete != nullptr) {
    // The match lies wholly in the held text: it was the partial match of its own pattern until now.
    held_.resize(held_.size() - complete->stop.size());
    matched_stop_ = complete->stop;
    return true;
  }
  ReleaseHeld(held_.size() - longest_partial);
  return false;
}

Verdict FinishTracker::Push(int32_t token, std::string_view piece_text) {
  if (verdict_.finished) return verdict_;
  ++completion_tokens_;
  if (!options_.ignore_eos && Contains(options_.eos_ids, token)) return Finish(FinishReason::kStop);
  if (Contains(options_.stop_token_ids, token)) return Finish(FinishReason::kStop);
  if (patterns_.empty()) {
    text_.append(piece_text);
  } else {
    for (char byte : piece_text)
      if (PushByte(byte)) return Finish(FinishReason::kStop);
  }
  if (completion_tokens_ >= limit_) return Finish(FinishReason::kLength);
  return verdict_;
}

std::string FinishTracker::TakeText() {
  std::string fresh = text_.substr(taken_bytes_);
  taken_bytes_ = text_.size();
  return fresh;
}

}  // namespace lockstep::engine
