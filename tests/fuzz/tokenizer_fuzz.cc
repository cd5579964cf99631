// Fuzzes the tokenizer twice: with a good small vocabulary and hostile text, and with a hostile specification.
//
// Input: one byte of flags, then the text up to the first 0xFE, then the lines of a specification.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr const char* kPres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};

TokenizerSpec GoodSpec(const char* pre) {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = pre;
  for (int i = 0; i < 256; ++i) spec.tokens.push_back(spec.Own(EncodeByteLevel(std::string(1, static_cast<char>(i)))));
  for (const char* token : {"aa", "aaa", "aaaa", "ba", "aab", "<s>", "<|im_end|>", "<t>", "<t>e"}) {
    spec.tokens.push_back(token);
  }
  spec.token_types.assign(spec.tokens.size(), 1);
  spec.token_types[261] = spec.token_types[262] = 3;
  spec.token_types[263] = spec.token_types[264] = 4;
  spec.merges = {"a a", "b a", "aa b", "aa a", "aa aa"};
  spec.bos_id = 261;
  spec.add_bos = true;
  return spec;
}

// What holds for every tokenizer: streams equal the whole, text is valid, user text holds no control token.
void CheckDecode(const Tokenizer& t, const std::vector<int32_t>& ids) {
  for (bool skip_special : {false, true}) {
    StreamDecoder decoder(&t, skip_special);
    std::string joined, valid;
    for (int32_t id : ids) joined += decoder.Push(id);
    joined += decoder.Finish();
    LS_CHECK(joined == t.Decode(ids, skip_special));
    LS_CHECK(AppendValidUtf8(joined, &valid) == joined.size() && valid == joined);
  }
}

void CheckEncode(const Tokenizer& t, std::string_view text) {
  const auto plain = t.Encode(text).value();
  for (int32_t id : plain) LS_CHECK(id >= 0 && id < t.vocab_size() && !t.IsControl(id));
  CheckDecode(t, plain);
  CheckDecode(t, t.Encode(text, {.add_special = true, .parse_special = true}).value());
  const TextPart parts[] = {{std::string(text.substr(0, text.size() / 2)), true},
                            {std::string(text.substr(text.size() / 2)), true}};
  LS_CHECK(t.EncodeParts(parts, false).value() == plain);
}

void FuzzText(uint8_t flags, std::string_view text) {
  static const auto tokenizers = [] {
    std::vector<std::unique_ptr<Tokenizer>> made;
    for (const char* pre : kPres) made.push_back(Tokenizer::Create(GoodSpec(pre)).value());
    return made;
  }();
  const Tokenizer& t = *tokenizers[flags % 4];
  CheckEncode(t, text);
  for (bool parse_special : {false, true}) {
    std::string joined;
    const auto ids = t.Encode(text, {.parse_special = parse_special}).value();
    for (int32_t id : ids) joined += t.Piece(id);
    LS_CHECK(joined == text);
  }
}

// Lines: "t<type letter><text>" a token, "m<text>" a merge, "i<4 bytes>" the ids of BOS, EOS, unknown and end of turn.
void FuzzSpec(uint8_t flags, std::string_view text, std::string_view lines) {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = kPres[flags % 4];
  if (flags & 4) spec = GoodSpec(kPres[flags % 4]);
  spec.add_bos = flags & 8;
  spec.add_eos = flags & 16;
  if (flags & 32) spec.ignore_merges = flags & 64;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.size() >= 2 && line[0] == 't') {
      spec.token_types.push_back(line[1] - '0');
      spec.tokens.emplace_back(line.substr(2));
    } else if (!line.empty() && line[0] == 'm') {
      spec.merges.emplace_back(line.substr(1));
    } else if (line.size() >= 5 && line[0] == 'i') {
      spec.bos_id = static_cast<int8_t>(line[1]);
      spec.eos_id = static_cast<int8_t>(line[2]);
      spec.unk_id = static_cast<int8_t>(line[3]);
      spec.eot_id = static_cast<int8_t>(line[4]);
      if (line.size() > 5) spec.extra_eos_ids.push_back(static_cast<int8_t>(line[5]));
    }
  }
  const auto t = Tokenizer::Create(std::move(spec));
  if (!t.ok()) {
    LS_CHECK(t.status().message().find('\n') == std::string::npos);
    return;
  }
  CheckEncode(**t, text);
  std::vector<int32_t> all;
  for (int32_t id = -2; id < (*t)->vocab_size() + 2; ++id) all.push_back(id);
  CheckDecode(**t, all);
}

}  // namespace
}  // namespace lockstep::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  using namespace lockstep::tokenizer;
  if (num_bytes == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, num_bytes - 1);
  const size_t text_bytes = std::min(input.find('\xFE'), input.size());
  const std::string_view text = input.substr(0, text_bytes);
  FuzzText(data[0], text);
  FuzzSpec(data[0], text, input.substr(std::min(text_bytes + 1, input.size())));
  return 0;
}
