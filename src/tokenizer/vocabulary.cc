#include "tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <string_view>

#include "tokenizer/byte_level.h"
#include "tokenizer/quote.h"

namespace lockstep::tokenizer {
namespace {

// The id of a token's text. A flat table: a node and an allocation for each of 50,000 tokens were most of the time that
// the tables take at start-up.
class IdOfText {
 public:
  explicit IdOfText(const std::vector<std::string_view>& tokens)
      : tokens_(&tokens), slots_(std::bit_ceil(2 * tokens.size() + 2)) {}

  // -1: no token has this text.
  int32_t Find(std::string_view text) const { return slots_[SlotOf(text, std::hash<std::string_view>()(text))].id; }

  // The token that has the text of `id` already, or -1 if it was added.
  int32_t Add(int32_t id) {
    const std::string_view text = (*tokens_)[static_cast<size_t>(id)];
    const size_t hash = std::hash<std::string_view>()(text);
    Slot& slot = slots_[SlotOf(text, hash)];
    if (slot.id >= 0) return slot.id;
    slot = {Tag(hash), id};
    return -1;
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    int32_t id = -1;  // -1 = free
  };
  static uint32_t Tag(size_t hash) { return static_cast<uint32_t>(hash >> 32); }

  // The slot that holds the text, or the free one where it would go.
  size_t SlotOf(std::string_view text, size_t hash) const {
    const size_t mask = slots_.size() - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.id < 0 || (slot.tag == Tag(hash) && (*tokens_)[static_cast<size_t>(slot.id)] == text)) return i;
    }
  }

  const std::vector<std::string_view>* tokens_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

constexpr std::string_view kEndNames[] = {"<|im_end|>",    "<|eot_id|>",      "<|eom_id|>",
                                          "<|endoftext|>", "<|end_of_text|>", "</s>"};

bool IsPlainText(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kUserDefined;
}

Status CheckId(const char* key, int64_t id, size_t vocab_size) {
  if (id >= 0 && static_cast<uint64_t>(id) < vocab_size) return OkStatus();
  return CorruptFile(fmt::format("{}: {} is not an id of the {} tokens in tokenizer.ggml.tokens", key, id, vocab_size));
}

Status CheckOptionalId(const char* key, int32_t id, size_t vocab_size) {
  return id == -1 ? OkStatus() : CheckId(key, id, vocab_size);
}

Status CheckIds(const TokenizerSpec& spec) {
  const size_t n = spec.tokens.size();
  LS_RETURN_IF_ERROR(CheckOptionalId("tokenizer.ggml.bos_token_id", spec.bos_id, n));
  LS_RETURN_IF_ERROR(CheckOptionalId("tokenizer.ggml.eos_token_id", spec.eos_id, n));
  LS_RETURN_IF_ERROR(CheckOptionalId("tokenizer.ggml.unknown_token_id", spec.unk_id, n));
  LS_RETURN_IF_ERROR(CheckOptionalId("tokenizer.ggml.eot_token_id", spec.eot_id, n));
  for (int32_t id : spec.extra_eos_ids) LS_RETURN_IF_ERROR(CheckId("extra_eos_ids", id, n));
  if (spec.add_bos && spec.bos_id < 0) {
    return CorruptFile("tokenizer.ggml.add_bos_token: true, but there is no tokenizer.ggml.bos_token_id");
  }
  if (spec.add_eos && spec.eos_id < 0) {
    return CorruptFile("tokenizer.ggml.add_eos_token: true, but there is no tokenizer.ggml.eos_token_id");
  }
  return OkStatus();
}

Result<std::vector<TokenType>> CheckTypes(const TokenizerSpec& spec) {
  const size_t n = spec.tokens.size();
  if (spec.token_types.empty()) return std::vector<TokenType>(n, TokenType::kNormal);
  if (spec.token_types.size() != n) {
    return CorruptFile(
        fmt::format("tokenizer.ggml.token_type: {} entries for the {} tokens in "
                    "tokenizer.ggml.tokens",
                    spec.token_types.size(), n));
  }
  std::vector<TokenType> types(n);
  for (size_t i = 0; i < n; ++i) {
    const int32_t type = spec.token_types[i];
    if (type < 1 || type > 6) {
      return CorruptFile(fmt::format("tokenizer.ggml.token_type[{}]: {} is not a type (1 to 6)", i, type));
    }
    types[i] = static_cast<TokenType>(type);
  }
  return types;
}

Result<IdOfText> CheckTokens(const TokenizerSpec& spec) {
  if (spec.tokens.empty()) return CorruptFile("tokenizer.ggml.tokens: no tokens");
  if (spec.tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return CorruptFile(fmt::format("tokenizer.ggml.tokens: {} tokens, more than ids", spec.tokens.size()));
  }
  IdOfText ids(spec.tokens);
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (const int32_t other = ids.Add(static_cast<int32_t>(i)); other >= 0) {
      return CorruptFile(
          fmt::format("tokenizer.ggml.tokens[{}]: {} is also token {}", i, Quote(spec.tokens[i]), other));
    }
  }
  return ids;
}

Result<std::vector<Bpe::Merge>> CheckMerges(const TokenizerSpec& spec, const IdOfText& ids,
                                            const std::vector<TokenType>& types) {
  if (spec.merges.size() > std::numeric_limits<uint32_t>::max()) {
    return CorruptFile(fmt::format("tokenizer.ggml.merges: {} merges, more than ranks", spec.merges.size()));
  }
  std::vector<Bpe::Merge> merges;
  merges.reserve(spec.merges.size());
  std::string whole;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const std::string_view text = spec.merges[i];
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == text.size() ||
        text.find(' ', space + 1) != std::string_view::npos) {
      return CorruptFile(
          fmt::format("tokenizer.ggml.merges[{}]: {} is not two tokens with one space between", i, Quote(text)));
    }
    whole.assign(text.substr(0, space));
    whole += text.substr(space + 1);
    int32_t found[3];
    const std::string_view parts[] = {text.substr(0, space), text.substr(space + 1), whole};
    for (int k = 0; k < 3; ++k) {
      found[k] = ids.Find(parts[k]);
      if (found[k] < 0) {
        return CorruptFile(fmt::format("tokenizer.ggml.merges[{}]: {}: {} is not in tokenizer.ggml.tokens", i,
                                       Quote(text), Quote(parts[k])));
      }
    }
    const TokenType type = types[found[2]];
    if (type == TokenType::kControl || type == TokenType::kUnknown) continue;
    merges.push_back({found[0], found[1], found[2]});
  }
  return merges;
}

std::vector<int32_t> EosIds(const TokenizerSpec& spec, const IdOfText& ids, const std::vector<TokenType>& types) {
  std::vector<int32_t> eos = spec.extra_eos_ids;
  if (spec.eos_id >= 0) eos.push_back(spec.eos_id);
  if (spec.eot_id >= 0) eos.push_back(spec.eot_id);
  for (std::string_view name : kEndNames) {
    const int32_t id = ids.Find(name);
    if (id >= 0 && types[id] == TokenType::kControl) eos.push_back(id);
  }
  std::sort(eos.begin(), eos.end());
  eos.erase(std::unique(eos.begin(), eos.end()), eos.end());
  return eos;
}

}  // namespace

Result<Vocabulary> CheckSpec(const TokenizerSpec& spec) {
  if (spec.model != "gpt2") {
    return Unsupported(fmt::format("tokenizer.ggml.model: {} is not supported (supported: gpt2)", Quote(spec.model)));
  }
  Vocabulary v;
  LS_ASSIGN_OR_RETURN(v.pre, ParsePreTokenizer(spec.pre));
  v.ignore_merges = spec.ignore_merges.value_or(v.pre == PreTokenizer::kLlamaBpe);
  LS_ASSIGN_OR_RETURN(const IdOfText ids, CheckTokens(spec));
  LS_ASSIGN_OR_RETURN(v.types, CheckTypes(spec));
  LS_RETURN_IF_ERROR(CheckIds(spec));
  LS_ASSIGN_OR_RETURN(v.merges, CheckMerges(spec, ids, v.types));

  v.pieces.resize(spec.tokens.size());
  v.from_bytes.resize(spec.tokens.size());
  v.byte_ids.fill(-1);
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string_view token = spec.tokens[i];
    auto bytes = IsPlainText(v.types[i]) ? std::nullopt : DecodeByteLevel(token);
    v.from_bytes[i] = bytes.has_value() && !bytes->empty();
    // A normal token outside the alphabet cannot come from text; if a model says it all the same, show it as it is.
    v.pieces[i] = bytes.has_value() ? *std::move(bytes) : std::string(token);
    if (v.from_bytes[i] && v.pieces[i].size() == 1) {
      v.byte_ids[static_cast<uint8_t>(v.pieces[i][0])] = static_cast<int32_t>(i);
    }
  }
  v.eos_ids = EosIds(spec, ids, v.types);
  return v;
}

}  // namespace lockstep::tokenizer
