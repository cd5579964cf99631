#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/stream_decoder.h"

namespace lockstep::tokenizer {

// Bytes [begin, end) of a text that come from a user; ranges are ascending and do not touch empty text.
struct Tokenizer::ByteRange {
  size_t begin;
  size_t end;
};

Tokenizer::Tokenizer(const TokenizerSpec& spec, Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)),
      bpe_(vocabulary_.byte_ids, vocabulary_.merges),
      bos_id_(spec.bos_id),
      eos_id_(spec.eos_id),
      add_bos_(spec.add_bos),
      add_eos_(spec.add_eos) {}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  LS_ASSIGN_OR_RETURN(Vocabulary vocabulary, CheckSpec(spec));
  std::unique_ptr<Tokenizer> t(new Tokenizer(spec, std::move(vocabulary)));
  Vocabulary& v = t->vocabulary_;
  v.merges = {};  // bpe_ has its own copy
  for (int32_t id = 0; id < t->vocab_size(); ++id) {
    if (t->IsControl(id) || v.types[id] == TokenType::kUserDefined) {
      LS_RETURN_IF_ERROR(t->added_.Add(v.pieces[id], id, t->IsControl(id)));
    } else if (v.ignore_merges && v.from_bytes[id]) {
      t->words_.emplace(v.pieces[id], id);
    }
  }
  return t;
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  const ByteRange all = {0, text.size()};
  const auto input = options.parse_special ? std::span<const ByteRange>() : std::span(&all, 1);
  LS_ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodeRanges(text, input));
  if (options.add_special) AddSpecial(&ids);
  return ids;
}

Result<std::vector<int32_t>> Tokenizer::EncodeParts(std::span<const TextPart> parts, bool add_special) const {
  std::string text;
  std::vector<ByteRange> input;
  for (const TextPart& part : parts) {
    if (part.is_input && !part.text.empty()) {
      input.push_back({text.size(), text.size() + part.text.size()});
    }
    text += part.text;
  }
  LS_ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodeRanges(text, input));
  if (add_special) AddSpecial(&ids);
  return ids;
}

Result<std::vector<int32_t>> Tokenizer::EncodeRanges(std::string_view text, std::span<const ByteRange> input) const {
  constexpr size_t kMaxBytes = (size_t{1} << 31) - 1;  // Bpe counts symbols in int32
  if (text.size() > kMaxBytes) {
    return InvalidArgument(fmt::format("the text has {} bytes; the limit is {}", text.size(), kMaxBytes));
  }
  std::vector<int32_t> ids;
  std::vector<std::string_view> words;
  Bpe::Scratch scratch;
  size_t range_idx = 0;
  auto is_ours = [&](size_t begin, size_t end) {  // begin never decreases from call to call
    while (range_idx < input.size() && input[range_idx].end <= begin) ++range_idx;
    return range_idx == input.size() || end <= input[range_idx].begin;
  };
  size_t pos = 0;
  while (const auto match = added_.Find(text, pos, is_ours)) {
    EncodeWords(text.substr(pos, match->begin - pos), &words, &scratch, &ids);
    ids.push_back(match->id);
    pos = match->end;
  }
  EncodeWords(text.substr(pos), &words, &scratch, &ids);
  return ids;
}

void Tokenizer::EncodeWords(std::string_view text, std::vector<std::string_view>* words, Bpe::Scratch* scratch,
                            std::vector<int32_t>* ids) const {
  words->clear();
  PreSplit(vocabulary_.pre, text, words);
  for (std::string_view word : *words) {
    const auto whole = words_.find(word);
    if (whole != words_.end()) {
      ids->push_back(whole->second);
    } else {
      bpe_.Encode(word, scratch, ids);
    }
  }
}

bool Tokenizer::AddSpecial(std::vector<int32_t>* ids) const {
  const bool had_bos = add_bos_ && !ids->empty() && ids->front() == bos_id_;
  if (add_bos_ && !had_bos) ids->insert(ids->begin(), bos_id_);
  if (add_eos_ && (ids->empty() || ids->back() != eos_id_)) ids->push_back(eos_id_);
  return !had_bos;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(this, skip_special);
  std::string text;
  for (int32_t id : ids) text += decoder.Push(id);
  return text += decoder.Finish();
}

std::string_view Tokenizer::Piece(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return vocabulary_.pieces[id];
}

bool Tokenizer::IsControl(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return false;
  const TokenType type = vocabulary_.types[id];
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

bool Tokenizer::IsEos(int32_t id) const {
  return std::binary_search(vocabulary_.eos_ids.begin(), vocabulary_.eos_ids.end(), id);
}

}  // namespace lockstep::tokenizer
