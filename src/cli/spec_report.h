// What speculation did for a request, in words and as JSON; and `explain spec`'s tables.
//
// Units:   seconds
// Threads: the main thread
#pragma once

#include <string>

#include "engine/request.h"

namespace lockstep::cli {

// One line: rounds, accept length, accepted by position, the drafts' share of the text, saved seconds, ledger, and why the
// last decision.
std::string SpecLine(const engine::DecodeStats& stats);

// The text of a JSON object: ledger_seconds (null if the ledger was off), loss_fraction and the counters.
std::string SpecCountersJson(const engine::DecodeStats& stats);

}  // namespace lockstep::cli
