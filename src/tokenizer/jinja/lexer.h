// Cuts a template into tokens, and applies the whitespace rules on the way.
//
// Errors:  kInvalidArgument  the template's line and what is wrong: an open comment, string or tag, a stray bracket
// Threads: any
// Cost:    one pass
// Source:  Jinja 3.1's template grammar with trim_blocks and lstrip_blocks on, as transformers sets them
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::tokenizer::jinja {

enum class TokenKind : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,
  kInt,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // data, name, operator; the value of a string
  int64_t int_value = 0;
  double float_value = 0;
};

// The last token is always kEnd.
Result<std::vector<Token>> Tokenize(const std::string& source);

}  // namespace lockstep::tokenizer::jinja
