// A piece of a rendered prompt, with the mark that says whether it may hold control tokens.
//
// Threads: a value; no sharing
#pragma once

#include <string>

namespace lockstep::tokenizer {

// is_input: the text came from a message, a tool or another part of the request, so nothing in it is a control token.
struct TextPart {
  std::string text;
  bool is_input = false;
};

}  // namespace lockstep::tokenizer
