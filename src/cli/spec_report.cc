#include "cli/spec_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lockstep::cli {
namespace {

// Up to the deepest that was accepted.
std::vector<int64_t> AcceptedByPosition(const engine::DecodeStats& stats) {
  std::vector<int64_t> counts(stats.accepted_at.begin() + 1, stats.accepted_at.end());
  while (!counts.empty() && counts.back() == 0) counts.pop_back();
  return counts;
}

}  // namespace

std::string SpecLine(const engine::DecodeStats& s) {
  const double share =
      s.decoded_tokens > 0 ? static_cast<double>(s.accepted_rows) / static_cast<double>(s.decoded_tokens) : 0;
  std::string line = fmt::format(
      "{} rounds with drafts, {} plain steps, accept length {:.2f}, accepted by position [{}], {:.0f} % of the text "
      "from drafts",
      s.rounds, s.plain_steps, s.accept_length(), fmt::join(AcceptedByPosition(s), " "), 100 * share);
  for (size_t d = 0; d < s.by_drafter.size(); ++d) {
    const auto& count = s.by_drafter[d];
    if (count.rounds == 0) continue;
    line += fmt::format("; {}: {} rounds, {} of {} rows accepted", engine::DrafterName(static_cast<engine::Drafter>(d)),
                        count.rounds, count.accepted_rows, count.draft_rows);
  }
  if (s.governed) {
    line += fmt::format("; saved {:.3f} s, ledger {:.4f} s; last: {}", s.ledger_secs, s.ledger_balance_secs,
                        s.last_decision);
  }
  return line;
}

std::string SpecCountersJson(const engine::DecodeStats& s) {
  nlohmann::ordered_json j;
  j["ledger_seconds"] = nullptr;
  j["loss_fraction"] = nullptr;
  j["ledger_balance_seconds"] = nullptr;
  j["machine_seconds"] = nullptr;
  j["last_decision"] = nullptr;
  if (s.governed) {
    j["ledger_seconds"] = s.ledger_secs;
    j["loss_fraction"] = s.loss_fraction();
    j["ledger_balance_seconds"] = s.ledger_balance_secs;
    j["machine_seconds"] = s.machine_secs;
    j["last_decision"] = s.last_decision;
  }
  j["plain_steps"] = s.plain_steps;
  j["draft_tokens"] = s.draft_rows;
  j["accepted_tokens"] = s.accepted_rows;
  j["accepted_by_position"] = AcceptedByPosition(s);
  j["by_drafter"] = nlohmann::ordered_json::object();
  for (size_t d = 0; d < s.by_drafter.size(); ++d) {
    const auto& count = s.by_drafter[d];
    if (count.rounds == 0) continue;
    j["by_drafter"][engine::DrafterName(static_cast<engine::Drafter>(d))] = {
        {"rounds", count.rounds}, {"draft_tokens", count.draft_rows}, {"accepted_tokens", count.accepted_rows}};
  }
  return j.dump();
}

}  // namespace lockstep::cli
