// What a caller asks of the engine, and what it gets.
//
// Shapes:   token ids; see each field
// Units:    seconds; tokens
// Threads:  values
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/finish.h"
#include "spec/acceptance.h"
#include "step/accept_walk.h"
#include "step/sampling_params.h"

namespace lockstep::engine {

enum class Drafter : uint8_t { kNone, kNgram, kEagle3, kDraft, kAuto, kWrong, kOracle, kRandom };
inline constexpr int kNumDrafters = 8;

// "none", "ngram", "eagle3", "draft" (a smaller model), "auto" (all that are loaded compete); the last three are for
// benches only.
const char* DrafterName(Drafter drafter);
// Whether it may run a head or a model.
inline bool RunsModels(Drafter drafter) {
  return drafter == Drafter::kEagle3 || drafter == Drafter::kDraft || drafter == Drafter::kAuto;
}
Result<Drafter> ParseDrafter(const std::string& text, bool bench);

// How many draft rows a round may have. kAuto: as many as the governor finds worth their cost and the ledger allows, often
// none. A fixed shape drafts every round, with both off.
struct DraftShape {
  enum class Kind : uint8_t { kAuto, kChain, kTree };
  Kind kind = Kind::kAuto;
  int num_nodes = 0;  // of a fixed shape
};

// "auto", "chain:4", "tree:8".
Result<DraftShape> ParseDraftShape(const std::string& text);

struct Request {
  std::vector<int32_t> prompt;
  step::SamplingParams sampling;
  int64_t max_tokens = -1;  // -1: to the end of the context
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;
  bool ignore_eos = false;
  Drafter drafter = Drafter::kNone;
  DraftShape shape;
  std::vector<int32_t> truth;  // for kOracle and kWrong: the output that plain decoding gave
  // Called with each piece of text as it becomes certain; may be null.
  std::function<void(const std::string&)> on_text;
};

// What decoding cost and what drafting brought; the time begins after the first token.
struct DecodeStats {
  double time_to_first_token_secs = 0;
  double prepare_secs = 0;  // timing steps of other widths, once an engine; not part of decode_secs
  double decode_secs = 0;
  int64_t plain_steps = 0;       // steps of one row
  double plain_secs = 0;         // in them
  int64_t rounds = 0;            // rounds with draft rows
  int64_t tokens_of_rounds = 0;  // that they emitted
  double verify_secs = 0;        // their steps
  double draft_secs = 0;         // proposing, misses included
  int64_t draft_rows = 0;
  int64_t accepted_rows = 0;
  struct WidthCount {
    int64_t accepted = 0, rejected = 0;
  };
  std::array<WidthCount, step::kMaxTreeRows + 1> by_width{};  // draft rows by the width of their round

  std::array<int64_t, spec::kMaxReportedDepth + 1> accepted_at{};  // rounds that accepted so deep; deeper: in the last

  struct DrafterCount {
    int64_t rounds = 0, draft_rows = 0, accepted_rows = 0;
    void Add(const DrafterCount& more) {
      rounds += more.rounds;
      draft_rows += more.draft_rows;
      accepted_rows += more.accepted_rows;
    }
  };
  std::array<DrafterCount, kNumDrafters> by_drafter{};  // whose rows a round verified

  // Of governor and ledger; only if they were on.
  bool governed = false;
  double ledger_secs = 0;          // saved against plain decoding by the ledger's books; below 0: lost
  double ledger_balance_secs = 0;  // at the end
  double machine_secs = 0;         // of rounds, too long to be a drafter's doing
  std::string last_decision;       // and why

  int64_t decoded_tokens = 0;  // after the first token

  double decode_tokens_per_second() const { return decode_secs > 0 ? double(decoded_tokens) / decode_secs : 0; }
  // How much slower than plain decoding, by the ledger's books.
  double loss_fraction() const {
    return decode_secs + ledger_secs > 0 ? std::max(0.0, decode_secs / (decode_secs + ledger_secs) - 1) : 0;
  }
  double accept_length() const { return rounds == 0 ? 1.0 : double(tokens_of_rounds) / double(rounds); }
};

struct Response {
  std::vector<int32_t> token_ids;  // an end-of-text token included
  std::string text;
  std::string finish_reason;  // "stop", "length", "interrupted"
  bool context_full = false;  // "length" because the context had no room for a further token
  int64_t prompt_tokens = 0;
  DecodeStats stats;

  void FindContextFull(int64_t context, int64_t max_tokens) {
    const auto count = static_cast<int64_t>(token_ids.size());
    context_full =
        finish_reason == "length" && prompt_tokens + count >= context && (max_tokens < 0 || count < max_tokens);
  }
};

}  // namespace lockstep::engine
