// What a model file says about its tokenizer, unchecked: Tokenizer::Create judges it.
//
// Threads: a value; no sharing
// Source:  the GGUF specification, keys tokenizer.ggml.*
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::tokenizer {

// GGUF's numbers (tokenizer.ggml.token_type).
enum class TokenType : int32_t {
  kNormal = 1,       // written in the byte-level alphabet
  kUnknown = 2,      // treated as control
  kControl = 3,      // plain text; found only where the caller asks for special tokens
  kUserDefined = 4,  // plain text; found in every text
  kUnused = 5,       // treated as normal
  kByte = 6,         // treated as normal
};

struct TokenizerSpec {
  std::string model;                     // tokenizer.ggml.model: "gpt2" (byte-level BPE)
  std::string pre;                       // tokenizer.ggml.pre, see pre_split.h
  std::vector<std::string_view> tokens;  // [vocab], as in the file; of texts that outlive this, as all of `owners` do
  std::vector<int32_t> token_types;      // [vocab], or empty = all normal
  std::vector<std::string_view> merges;  // "left right", by rank; as tokens
  std::vector<std::shared_ptr<const void>> owners;

  // A view of `text`, which this and its copies keep.
  std::string_view Own(std::string text) {
    auto owned = std::make_shared<const std::string>(std::move(text));
    owners.push_back(owned);
    return *owned;
  }

  int32_t bos_id = -1;  // -1 = the file names none, here and below
  int32_t eos_id = -1;
  int32_t unk_id = -1;  // checked, not used: a byte-level text has no unknown part (bpe.h)
  int32_t eot_id = -1;  // tokenizer.ggml.eot_token_id: ends a turn, so it ends an answer

  // More ids that end an answer: a generation config may list several.
  std::vector<int32_t> extra_eos_ids;

  bool add_bos = false;  // tokenizer.ggml.add_bos_token
  bool add_eos = false;  // tokenizer.ggml.add_eos_token

  // A word that is a token is not split further. Default: true iff pre is "llama-bpe".
  std::optional<bool> ignore_merges;
};

}  // namespace lockstep::tokenizer
