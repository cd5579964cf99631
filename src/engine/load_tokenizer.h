// A tokenizer's description out of a GGUF file: only the tokenizer.* keys are needed, no supported architecture.
//
// Errors:   kNotFound  a key is missing; kCorruptFile  a key has another type; each names file and key
// Threads:  pure functions
#pragma once

#include <string>

#include "base/result.h"
#include "model/formats/gguf.h"
#include "tokenizer/spec.h"

namespace lockstep::engine {

// The file must outlive the result, whose texts lie in it.
Result<tokenizer::TokenizerSpec> TokenizerSpecOf(const model::GgufFile& file);
// The same from a path, the file kept by the result; it may hold a vocabulary alone.
Result<tokenizer::TokenizerSpec> LoadTokenizerSpec(const std::string& path);

// The file's chat template, or "".
std::string ChatTemplateOf(const model::GgufFile& file);

}  // namespace lockstep::engine
