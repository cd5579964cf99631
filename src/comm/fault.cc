#include "comm/fault.h"

#include <fmt/format.h>

#include <charconv>

namespace lockstep::comm {
namespace {

template <typename T>
bool ParseNumber(std::string_view text, T* out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

Status Bad(const std::string& text, const char* why) {
  return InvalidArgument(
      fmt::format("LOCKSTEP_FAULT \"{}\": {}; expected kill|stall|corrupt:rank=R,step=S or round:step=S", text, why));
}

}  // namespace

Result<FaultPlan> ParseFault(const std::string& text) {
  FaultPlan plan;
  if (text.empty()) return plan;
  size_t colon = text.find(':');
  std::string kind = text.substr(0, colon);
  if (kind == "kill") {
    plan.kind = FaultKind::kKill;
  } else if (kind == "stall") {
    plan.kind = FaultKind::kStall;
  } else if (kind == "corrupt") {
    plan.kind = FaultKind::kCorrupt;
  } else if (kind == "round") {
    plan.kind = FaultKind::kRound;
  } else {
    return Bad(text, "no such kind");
  }
  bool has_rank = false, has_step = false;
  std::string_view rest = colon == std::string::npos ? "" : std::string_view(text).substr(colon + 1);
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    std::string_view pair = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    if (pair.starts_with("rank=")) {
      if (has_rank || !ParseNumber(pair.substr(5), &plan.rank) || plan.rank < 0) {
        return Bad(text, "bad rank");
      }
      has_rank = true;
    } else if (pair.starts_with("step=")) {
      if (has_step || !ParseNumber(pair.substr(5), &plan.step)) return Bad(text, "bad step");
      has_step = true;
    } else {
      return Bad(text, "unknown key");
    }
  }
  const bool all_ranks = plan.kind == FaultKind::kRound;
  if (all_ranks && has_rank) return Bad(text, "round concerns all ranks");
  if (!has_step || has_rank == all_ranks)
    return Bad(text, all_ranks ? "a step is needed" : "rank and step are both needed");
  return plan;
}

}  // namespace lockstep::comm
