// Numbers and strings as a template writes them: the part of the lexer that is Python's, not Jinja's.
//
// Units:   num_bytes in bytes
// Errors:  Literal::error; the lexer adds the template's line
// Threads: any
// Cost:    one pass
// Source:  Python's literals without f-strings, prefixes and \N{name}; integers are 64 bits
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tokenizer/jinja/lexer.h"

namespace lockstep::tokenizer::jinja {

struct Literal {
  Token token{};         // without its line
  size_t num_bytes = 0;  // read; with an error, up to the place whose line the error names
  std::string error;     // empty: none
};

inline bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// `text` begins with a digit.
Literal ScanNumber(std::string_view text);
// `text` begins with a quote.
Literal ScanString(std::string_view text);

}  // namespace lockstep::tokenizer::jinja
