// Pre-tokenizers: cut a text into the words that BPE works on, by hand for the published patterns.
//
//   gpt-2      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   smollm     each number character alone, then gpt-2 on what lies between
//   llama-bpe  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//              | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   qwen2      llama-bpe with \p{N} in place of \p{N}{1,3}
//
// Errors:  kUnsupported  ParsePreTokenizer: a name that is none of these
// Threads: any
// Cost:    linear: each character is looked at a fixed number of times
// Source:  the tokenizer.json files of the models. A generic regex engine would bring its own Unicode version and
//          backtracking limits; ours is that of unicode.h.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::tokenizer {

enum class PreTokenizer { kGpt2, kSmolLm, kLlamaBpe, kQwen2 };

// The pre-tokenizer that a file names in tokenizer.ggml.pre.
Result<PreTokenizer> ParsePreTokenizer(std::string_view name);

// Appends the words of `text`, in order and without gaps; the views point into `text`. The end of `text` counts as the
// end for the look-ahead (?!\S). A byte that is not part of valid UTF-8 counts as a character [^\s\p{L}\p{N}].
void PreSplit(PreTokenizer kind, std::string_view text, std::vector<std::string_view>* words);

}  // namespace lockstep::tokenizer
