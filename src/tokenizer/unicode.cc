#include "tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace lockstep::tokenizer {
namespace {

struct ClassRange {
  uint32_t first;
  uint32_t last;
  CharClass char_class;
};

constexpr ClassRange kRanges[] = {
#include "tokenizer/unicode_tables.inc"
};

constexpr CharClass Search(uint32_t code_point) {
  const auto* range = std::lower_bound(std::begin(kRanges), std::end(kRanges), code_point,
                                       [](const ClassRange& r, uint32_t c) { return r.last < c; });
  if (range == std::end(kRanges) || code_point < range->first) return CharClass::kOther;
  return range->char_class;
}

constexpr std::array<CharClass, 128> kAscii = [] {
  std::array<CharClass, 128> table{};
  for (uint32_t c = 0; c < table.size(); ++c) table[c] = Search(c);
  return table;
}();

struct Sequence {
  uint32_t code_point = kInvalidByte;
  uint32_t num_bytes = 1;  // of the character, or of its valid prefix
  bool truncated = false;  // the prefix is valid and the text ends in it
};

// The allowed second bytes depend on the first one; that is what excludes overlong forms, surrogates and > U+10FFFF.
Sequence Read(std::string_view text, size_t pos) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(pos);
  if (lead < 0x80) return {.code_point = lead};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const uint32_t total_bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  uint32_t code_point = lead & (0x7F >> total_bytes);
  for (uint32_t i = 1; i < total_bytes; ++i) {
    if (pos + i >= text.size()) return {.num_bytes = i, .truncated = true};
    if (byte(pos + i) < low || byte(pos + i) > high) return {.num_bytes = i};
    code_point = code_point << 6 | (byte(pos + i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {.code_point = code_point, .num_bytes = total_bytes};
}

}  // namespace

CharClass CharClassOf(uint32_t code_point) {
  return code_point < kAscii.size() ? kAscii[code_point] : Search(code_point);
}

Utf8Char DecodeUtf8(std::string_view text, size_t pos) {
  const Sequence s = Read(text, pos);
  if (s.code_point == kInvalidByte) return {kInvalidByte, 1};
  return {s.code_point, s.num_bytes};
}

void AppendUtf8(uint32_t c, std::string* out) {
  auto add = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6);
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  }
}

size_t AppendValidUtf8(std::string_view bytes, std::string* out) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    const Sequence s = Read(bytes, pos);
    if (s.truncated) break;
    if (s.code_point == kInvalidByte) {
      AppendUtf8(0xFFFD, out);
    } else {
      out->append(bytes.substr(pos, s.num_bytes));
    }
    pos += s.num_bytes;
  }
  return pos;
}

}  // namespace lockstep::tokenizer
