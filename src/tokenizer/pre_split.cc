#include "tokenizer/pre_split.h"

#include <fmt/format.h>

#include "tokenizer/quote.h"
#include "tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

struct Char {
  CharClass char_class;
  size_t end;
};

Char ReadChar(std::string_view text, size_t pos) {
  const Utf8Char c = DecodeUtf8(text, pos);
  return {CharClassOf(c.code_point), pos + c.num_bytes};
}

// As the patterns see it: in Unicode 16 a kNewNumber is still unassigned.
CharClass PatternClass(std::string_view text, size_t pos) {
  const CharClass c = ReadChar(text, pos).char_class;
  return c == CharClass::kNewNumber ? CharClass::kOther : c;
}

size_t SkipClass(std::string_view text, size_t pos, CharClass char_class) {
  while (pos < text.size() && PatternClass(text, pos) == char_class) pos = ReadChar(text, pos).end;
  return pos;
}

bool IsNewline(char c) {
  return c == '\r' || c == '\n';
}

// The length of 's 't 'm 'd 're 've 'll at `pos`, or 0. Folding also takes U+017F (long s): it is the only other
// character that Unicode folds to one of these letters.
size_t ContractionBytes(std::string_view text, size_t pos, bool fold_case) {
  if (text[pos] != '\'') return 0;
  auto letter = [&](size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return fold_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(pos + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = letter(pos + 2);
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  if (fold_case && text.substr(pos + 1, 2) == "\u017F") return 3;
  return 0;
}

// \s+(?!\S)|\s+ at a run of spaces: all of it at the end of the text, else all but the last, which the following word
// may want; a single one alone.
size_t SpaceEnd(std::string_view text, size_t pos) {
  size_t last = pos, end = pos;
  while (end < text.size() && PatternClass(text, end) == CharClass::kSpace) {
    last = end;
    end = ReadChar(text, end).end;
  }
  return end == text.size() || last == pos ? end : last;
}

size_t Gpt2End(std::string_view text, size_t pos) {
  if (size_t num_bytes = ContractionBytes(text, pos, false)) return pos + num_bytes;
  const size_t body = text[pos] == ' ' ? pos + 1 : pos;
  if (body < text.size()) {
    const CharClass c = PatternClass(text, body);
    if (c != CharClass::kSpace) return SkipClass(text, body, c);
  }
  return SpaceEnd(text, pos);
}

size_t LlamaEnd(std::string_view text, size_t pos, int max_digits) {
  if (size_t num_bytes = ContractionBytes(text, pos, true)) return pos + num_bytes;
  const CharClass first = PatternClass(text, pos);
  const size_t second = ReadChar(text, pos).end;
  if (first == CharClass::kLetter) return SkipClass(text, pos, first);
  if (first == CharClass::kNumber) {
    size_t end = second;
    for (int i = 1; i < max_digits && end < text.size(); ++i) {
      if (PatternClass(text, end) != CharClass::kNumber) break;
      end = ReadChar(text, end).end;
    }
    return end;
  }
  if (!IsNewline(text[pos]) && second < text.size() && PatternClass(text, second) == CharClass::kLetter) {
    return SkipClass(text, second, CharClass::kLetter);
  }
  const size_t body = text[pos] == ' ' ? second : pos;
  if (body < text.size() && PatternClass(text, body) == CharClass::kOther) {
    size_t end = SkipClass(text, body, CharClass::kOther);
    while (end < text.size() && IsNewline(text[end])) ++end;
    return end;
  }
  // \s*[\r\n]+ takes a run of spaces up to its last newline.
  size_t newline_end = pos;
  for (size_t end = pos; end < text.size() && PatternClass(text, end) == CharClass::kSpace;) {
    const bool newline = IsNewline(text[end]);
    end = ReadChar(text, end).end;
    if (newline) newline_end = end;
  }
  return newline_end > pos ? newline_end : SpaceEnd(text, pos);
}

template <typename EndOf>
void SplitBy(std::string_view text, EndOf end_of, std::vector<std::string_view>* words) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = end_of(text, pos);
    words->push_back(text.substr(pos, end - pos));
    pos = end;
  }
}

void SplitSmolLm(std::string_view text, std::vector<std::string_view>* words) {
  size_t start = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Char c = ReadChar(text, pos);
    if (c.char_class == CharClass::kNumber || c.char_class == CharClass::kNewNumber) {
      SplitBy(text.substr(start, pos - start), Gpt2End, words);
      words->push_back(text.substr(pos, c.end - pos));
      start = c.end;
    }
    pos = c.end;
  }
  SplitBy(text.substr(start), Gpt2End, words);
}

}  // namespace

Result<PreTokenizer> ParsePreTokenizer(std::string_view name) {
  if (name == "gpt-2") return PreTokenizer::kGpt2;
  if (name == "smollm") return PreTokenizer::kSmolLm;
  if (name == "llama-bpe") return PreTokenizer::kLlamaBpe;
  if (name == "qwen2") return PreTokenizer::kQwen2;
  return Unsupported(
      fmt::format("tokenizer.ggml.pre: {} is not supported (supported: gpt-2, llama-bpe, qwen2, "
                  "smollm)",
                  Quote(name)));
}

void PreSplit(PreTokenizer kind, std::string_view text, std::vector<std::string_view>* words) {
  switch (kind) {
    case PreTokenizer::kGpt2:
      return SplitBy(text, Gpt2End, words);
    case PreTokenizer::kSmolLm:
      return SplitSmolLm(text, words);
    case PreTokenizer::kLlamaBpe:
      return SplitBy(
          text, [](auto t, size_t pos) { return LlamaEnd(t, pos, 3); }, words);
    case PreTokenizer::kQwen2:
      return SplitBy(
          text, [](auto t, size_t pos) { return LlamaEnd(t, pos, 1); }, words);
  }
}

}  // namespace lockstep::tokenizer
