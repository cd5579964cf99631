// Code points: their class for the pre-tokenizers, and strict UTF-8 decoding.
//
// Errors:  none; a byte that starts no valid sequence is reported as such and stands for itself
// Threads: any
// Cost:    CharClassOf: one table read for ASCII, else a binary search over 833 ranges
// Source:  Unicode 16 (tools/gen_unicode.py); The Unicode Standard, table 3-7 (well-formed UTF-8)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::tokenizer {

enum class CharClass : uint8_t {
  kOther,      // everything else, unassigned code points and invalid bytes too
  kLetter,     // \p{L}
  kNumber,     // \p{N}
  kSpace,      // \s: the White_Space property
  kNewNumber,  // a number since Unicode 17: kOther in a pattern, but a digit for smollm's Digits
};

CharClass CharClassOf(uint32_t code_point);

struct Utf8Char {
  uint32_t code_point;  // kInvalidByte if no valid sequence starts here
  uint32_t num_bytes;   // 1 if invalid: the next byte may start a character again
};
inline constexpr uint32_t kInvalidByte = 0xFFFFFFFF;

// The character at text[pos]. Requires pos < text.size(). Surrogates and overlong forms are invalid.
Utf8Char DecodeUtf8(std::string_view text, size_t pos);

// Appends `code_point` in UTF-8. Requires a valid code point that is no surrogate.
void AppendUtf8(uint32_t code_point, std::string* out);

// Appends the complete characters of `bytes` to `out`, each broken sequence as one U+FFFD (the longest valid prefix of
// a character counts as one: the rule of WHATWG, Rust and Python). Returns how many bytes were used: fewer than
// bytes.size() only if `bytes` ends in the beginning of a character that more bytes could complete (1 to 3 are left).
size_t AppendValidUtf8(std::string_view bytes, std::string* out);

}  // namespace lockstep::tokenizer
