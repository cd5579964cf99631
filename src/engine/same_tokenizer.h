// Whether two model files have one tokenizer: a draft model reads its target's ids and answers with its own.
//
// Compared are texts and types of tokens, the model, the pre-tokenizer and the merges. Not compared: ids that stand for no
// text (files pad a vocabulary, each in its own way), and which ids begin or end a text: that is the target's own affair,
// since a draft only continues its ids.
//
// Errors:  kNotFound  a key is missing; kCorruptFile  a key has another type; each names file and key
// Threads: pure
// Cost:    one pass over the metadata arrays, byte by byte where they are equal; no tokenizer is built
#pragma once

#include <string>

#include "base/result.h"
#include "model/formats/gguf.h"

namespace lockstep::engine {

// How the draft's tokenizer differs from the target's, for a person; or "". Of tokens: how many differ, and the first.
Result<std::string> TokenizerDifference(const model::GgufFile& draft, const model::GgufFile& target);

}  // namespace lockstep::engine
