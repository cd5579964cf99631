// The byte-level alphabet of GPT-2: a vocabulary file writes each byte as one printable letter (space as U+0120,
// newline as U+010A). Everywhere else in Lockstep, tokens are raw bytes.
//
// Errors:  DecodeByteLevel returns nothing for text that holds a character outside the alphabet
// Threads: any
// Source:  GPT-2's bytes_to_unicode: the 188 printable Latin-1 bytes stand for themselves, the other 68, in ascending
//          order, are written as U+0100 and on
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::tokenizer {

// The letter that stands for `byte`.
uint32_t ByteLevelLetter(uint8_t byte);

// The bytes that a token of the file stands for, e.g. "\u0120a" -> " a".
std::optional<std::string> DecodeByteLevel(std::string_view token);

// The inverse: how the file would write `bytes`.
std::string EncodeByteLevel(std::string_view bytes);

}  // namespace lockstep::tokenizer
