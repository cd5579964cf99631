// What speculation did for a request, in words and as JSON; and `explain spec`'s tables.
//
// Units:   seconds
// Threads: the main thread
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/request.h"

namespace lockstep::cli {

// One line: rounds, accept length, accepted by position, the drafts' share of the text, saved seconds, ledger, and why the
// last decision.
std::string SpecLine(const engine::DecodeStats& stats);

// ledger_seconds (null if the ledger was off), loss_fraction and the counters.
void AddSpecCounters(const engine::DecodeStats& stats, nlohmann::ordered_json* json);

}  // namespace lockstep::cli
