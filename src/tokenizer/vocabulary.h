// A TokenizerSpec that has passed every check: the tables behind Tokenizer.
//
// Errors:  kUnsupported  a tokenizer model or pre-tokenizer that is not built
//          kCorruptFile  the file contradicts itself: an id outside the vocabulary, a token twice, a merge of unknown
//                        tokens, lists of different lengths; the text names the key and the value
// Threads: const after construction
// Cost:    one pass over tokens and merges; well under a second for 150,000 tokens and merges
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pre_split.h"
#include "tokenizer/spec.h"

namespace lockstep::tokenizer {

struct Vocabulary {
  PreTokenizer pre;
  bool ignore_merges;
  std::vector<std::string> pieces;    // [vocab], the raw bytes that each token stands for
  std::vector<TokenType> types;       // [vocab]
  std::vector<bool> from_bytes;       // [vocab], normal and written in the byte-level alphabet
  std::array<int32_t, 256> byte_ids;  // the token of each byte, -1 = none
  std::vector<Bpe::Merge> merges;     // by rank
  std::vector<int32_t> eos_ids;       // ascending, no id twice
};

// Makes the tables. A merge into a control token is dropped, where Hugging Face would apply it: no plain text may turn
// into a control token.
//
// The ids that end an answer are: eos_id, eot_id, extra_eos_ids, and every control token named <|im_end|>, <|eot_id|>,
// <|eom_id|>, <|endoftext|>, <|end_of_text|> or </s>: a file names one id, and often the end of a document where an
// answer stops at the end of a turn.
Result<Vocabulary> CheckSpec(const TokenizerSpec& spec);

}  // namespace lockstep::tokenizer
