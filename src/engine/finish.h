// When a request's text ends, decided one token at a time, and which text may already be shown.
//
// A round may emit many tokens, a plain step one. Both push them here one by one and stop at the first verdict, so they
// agree on the reason, the tokens counted and the text by construction. At one token, a stop wins over a limit.
//
// An eos or stop id counts as a completion token; its text is not part of the answer.
//
// A stop string is matched over bytes, across tokens; the text ends before the match, and what the token holds after it
// is dropped. The match that is complete first wins, of several complete at the same byte the longest, so the cut does
// not depend on how the text was split into tokens.
//
// A limit (max_tokens, or the context is full) ends the text after that token's text.
//
// Bytes that could be the start of a stop string are held back until they are not, or to the end.
//
// Units:   tokens; text in bytes (whole UTF-8 characters, if the pieces are whole)
// Errors:  kInvalidArgument  an id outside the vocabulary, an empty, long or surplus stop string
// Threads: one caller an object
// Cost:    a few operations a byte and stop string, whatever their lengths (Knuth-Morris-Pratt)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::engine {

// Stop strings a request may have. The OpenAI interface takes 4; agents send more. Bounds the cost of a byte.
inline constexpr int kMaxStopStrings = 16;
// Bytes of a stop string. Bounds the text that is held back.
inline constexpr int kMaxStopBytes = 1024;

struct FinishOptions {
  std::vector<int32_t> eos_ids;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;
  int64_t max_tokens = -1;   // -1: as far as the context goes; 0: nothing is generated
  int64_t context_room = 0;  // positions left after the prompt: no more tokens than this
  bool ignore_eos = false;   // eos_ids do not end the text (stop_token_ids still do)
};

Status ValidateFinish(const FinishOptions& options, int vocab);

enum class FinishReason { kNone, kStop, kLength };

// The interface's word: "stop", "length"; "" while running.
const char* FinishReasonName(FinishReason reason);

struct Verdict {
  bool finished = false;
  FinishReason reason = FinishReason::kNone;
  bool operator==(const Verdict&) const = default;
};

class FinishTracker {
 public:
  // Options as validated. With max_tokens or context_room 0 the request is finished before its first token.
  explicit FinishTracker(FinishOptions options);

  // Takes the next token and its text. After a finished verdict it takes nothing more and repeats the verdict, so a
  // caller that pushes the rest of a round by mistake adds no token and no text.
  Verdict Push(int32_t token, std::string_view piece_text);

  // The text that became certain since the last call; at the end, all that is left. Joined, the calls give text().
  std::string TakeText();

  const Verdict& verdict() const { return verdict_; }
  // Tokens taken, the eos or stop token included.
  int64_t completion_tokens() const { return completion_tokens_; }
  // All text released so far, taken or not.
  const std::string& text() const { return text_; }
  // Text that could still turn out to be a stop string.
  std::string_view held_text() const { return held_; }
  // The stop string that ended the text, or "".
  const std::string& matched_stop() const { return matched_stop_; }

 private:
  struct Pattern {
    std::string stop;
    std::vector<int> fallback;  // [bytes] longest proper border of each prefix
    int matched = 0;            // bytes of `stop` that the text so far ends with
  };
  // Appends a byte to the held text; true if it completes a stop string, which is then cut off.
  bool PushByte(char byte);
  Verdict Finish(FinishReason reason);
  void ReleaseHeld(size_t num_bytes);

  FinishOptions options_;
  std::vector<Pattern> patterns_;
  int64_t limit_ = 0;
  int64_t completion_tokens_ = 0;
  Verdict verdict_;
  std::string held_;
  std::string text_;
  size_t taken_bytes_ = 0;
  std::string matched_stop_;
};

}  // namespace lockstep::engine
