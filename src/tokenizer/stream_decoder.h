// Detokenisation token by token: text that never ends inside a UTF-8 character.
//
// Errors:  none; an id outside the vocabulary (a padded output layer has some) adds nothing
// Threads: one caller; the Tokenizer must outlive it
// Order:   the chunks joined, Finish included, equal Tokenizer::Decode of the same ids
#pragma once

#include <cstdint>
#include <string>

#include "tokenizer/tokenizer.h"

namespace lockstep::tokenizer {

class StreamDecoder {
 public:
  // skip_special: control tokens add nothing.
  explicit StreamDecoder(const Tokenizer* tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that `id` completes; empty while a character is unfinished. Bytes that cannot become a character turn into
  // U+FFFD at once.
  std::string Push(int32_t id);

  // The end of the text: an unfinished character becomes one U+FFFD, as it would at the end of a whole text. The
  // decoder is then as new.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;  // the beginning of a character, 0 to 3 bytes
};

}  // namespace lockstep::tokenizer
