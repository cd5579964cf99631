// The tokenizer of a model: text to ids and back, equal to Hugging Face's tokenizers id for id.
//
// Units:   text in bytes (UTF-8; a byte that is not valid UTF-8 is encoded as that byte)
// Errors:  Create: see vocabulary.h and added_tokens.h
//          Encode: kInvalidArgument  a text of 2^31 bytes or more
// Threads: const after Create; any number of callers
// Cost:    Encode O(n log n) in the bytes of the longest word, else linear
// Source:  Hugging Face tokenizers: added vocabulary, pre-tokenizer, BPE. Normalizers (the NFC of Qwen2) are left out:
//          a GGUF names none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/spec.h"
#include "tokenizer/text_part.h"
#include "tokenizer/vocabulary.h"

namespace lockstep::tokenizer {

struct EncodeOptions {
  bool add_special = false;    // add BOS and EOS where the file asks for them, see AddSpecial
  bool parse_special = false;  // text that spells a control token becomes that token
};

class Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);

  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const;

  // Encodes the joined text of `parts`, as if it were one string, except that a control token is recognised only where
  // none of its bytes comes from an input part. Words and user-defined tokens may cross the borders.
  Result<std::vector<int32_t>> EncodeParts(std::span<const TextPart> parts, bool add_special) const;

  // Adds BOS in front if the file has add_bos, and EOS at the end if it has add_eos; ids that have it there already (a
  // template prints the start token itself) are left so: exactly one of each results. Returns false if BOS was there
  // already, so that a caller can say so.
  bool AddSpecial(std::vector<int32_t>* ids) const;

  // The text of `ids`, valid UTF-8 always: broken sequences become U+FFFD (unicode.h). Ids outside the vocabulary add
  // nothing. skip_special: nor do control tokens.
  std::string Decode(std::span<const int32_t> ids, bool skip_special = true) const;

  // The raw bytes of a token, perhaps a part of a character; empty for an id outside the vocabulary.
  std::string_view Piece(int32_t id) const;

  // A control token, or the unknown token of the file. False outside the vocabulary.
  bool IsControl(int32_t id) const;

  // Whether generation ends at `id`; the rule is with CheckSpec in vocabulary.h.
  bool IsEos(int32_t id) const;
  const std::vector<int32_t>& eos_ids() const { return vocabulary_.eos_ids; }  // ascending

  int32_t bos_id() const { return bos_id_; }  // -1 = none
  int32_t eos_id() const { return eos_id_; }  // the file's own, -1 = none
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }
  int32_t vocab_size() const { return static_cast<int32_t>(vocabulary_.pieces.size()); }

 private:
  struct ByteRange;

  Tokenizer(const TokenizerSpec& spec, Vocabulary vocabulary);

  Result<std::vector<int32_t>> EncodeRanges(std::string_view text, std::span<const ByteRange> input) const;
  void EncodeWords(std::string_view text, std::vector<std::string_view>* words, Bpe::Scratch* scratch,
                   std::vector<int32_t>* ids) const;

  Vocabulary vocabulary_;
  Bpe bpe_;
  AddedTokens added_;
  // For ignore_merges, else empty; the keys are views of vocabulary_.pieces.
  std::unordered_map<std::string_view, int32_t> words_;
  int32_t bos_id_;
  int32_t eos_id_;
  bool add_bos_;
  bool add_eos_;
};

}  // namespace lockstep::tokenizer
