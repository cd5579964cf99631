// A small vocabulary for the unit tests: every byte has the id of its value, then a few tokens.
//
// Threads: a value; no sharing
#pragma once

#include <string>
#include <utility>

#include "tokenizer/byte_level.h"
#include "tokenizer/spec.h"

namespace lockstep::tokenizer {

inline constexpr int32_t kHe = 256, kHello = 259, kStart = 260, kEnd = 261, kThink = 262, kThinker = 263;

inline TokenizerSpec SmallSpec(std::string pre = "gpt-2") {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = std::move(pre);
  for (int i = 0; i < 256; ++i) spec.tokens.push_back(spec.Own(EncodeByteLevel(std::string(1, static_cast<char>(i)))));
  for (const char* token : {"he", "ll", "hell", "hello", "<s>", "<|im_end|>", "<think>", "<think>er"}) {
    spec.tokens.push_back(token);
  }
  spec.token_types.assign(spec.tokens.size(), 1);
  spec.token_types[kStart] = spec.token_types[kEnd] = 3;
  spec.token_types[kThink] = spec.token_types[kThinker] = 4;
  spec.merges = {"h e", "l l", "he ll", "hell o"};
  spec.bos_id = kStart;
  spec.eos_id = 0;
  return spec;
}

}  // namespace lockstep::tokenizer
