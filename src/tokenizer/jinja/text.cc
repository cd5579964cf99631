#include "tokenizer/jinja/text.h"

#include <algorithm>

namespace lockstep::tokenizer::jinja {

Text::Text(std::string bytes, bool is_input) : bytes_(std::move(bytes)) {
  AddRun(bytes_.size(), is_input);
}

bool Text::HasInput() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& r) { return r.is_input; });
}

void Text::AddRun(size_t num_bytes, bool is_input) {
  if (num_bytes == 0) return;
  const size_t begin = runs_.empty() ? 0 : runs_.back().end_bytes;
  if (!runs_.empty() && runs_.back().is_input == is_input) {
    runs_.back().end_bytes = begin + num_bytes;
  } else {
    runs_.push_back({begin + num_bytes, is_input});
  }
}

void Text::Append(const Text& other) {
  size_t begin = 0;
  for (const Run& run : other.runs_) {
    AddRun(run.end_bytes - begin, run.is_input);
    begin = run.end_bytes;
  }
  bytes_ += other.bytes_;
}

void Text::Append(std::string_view bytes, bool is_input) {
  bytes_ += bytes;
  AddRun(bytes.size(), is_input);
}

Text Text::Slice(size_t begin, size_t end) const {
  Text out;
  end = std::min(end, bytes_.size());
  if (begin >= end) return out;
  out.bytes_ = bytes_.substr(begin, end - begin);
  auto run =
      std::upper_bound(runs_.begin(), runs_.end(), begin, [](size_t at, const Run& r) { return at < r.end_bytes; });
  for (; run != runs_.end() && begin < end; ++run) {
    const size_t stop = std::min(end, run->end_bytes);
    out.AddRun(stop - begin, run->is_input);
    begin = stop;
  }
  return out;
}

std::vector<TextPart> Text::Parts() const {
  std::vector<TextPart> parts;
  size_t begin = 0;
  for (const Run& run : runs_) {
    parts.push_back({bytes_.substr(begin, run.end_bytes - begin), run.is_input});
    begin = run.end_bytes;
  }
  return parts;
}

size_t NextChar(std::string_view bytes, size_t begin) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(begin);
  size_t num_bytes = 1;
  if (lead >= 0xC2 && lead <= 0xDF) num_bytes = 2;
  if (lead >= 0xE0 && lead <= 0xEF) num_bytes = 3;
  if (lead >= 0xF0 && lead <= 0xF4) num_bytes = 4;
  if (begin + num_bytes > bytes.size()) return begin + 1;
  for (size_t i = 1; i < num_bytes; ++i) {
    if ((byte(begin + i) & 0xC0) != 0x80) return begin + 1;
  }
  return begin + num_bytes;
}

std::vector<size_t> CharStarts(std::string_view bytes) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < bytes.size(); at = NextChar(bytes, at)) starts.push_back(at);
  starts.push_back(bytes.size());
  return starts;
}

size_t CountChars(std::string_view bytes) {
  size_t num_chars = 0;
  for (size_t at = 0; at < bytes.size(); at = NextChar(bytes, at)) ++num_chars;
  return num_chars;
}

uint32_t DecodeChar(std::string_view bytes, size_t begin, size_t end) {
  const uint8_t lead = static_cast<uint8_t>(bytes[begin]);
  const size_t num_bytes = end - begin;
  if (num_bytes == 1) return lead < 0x80 ? lead : 0xDC00u + lead;
  uint32_t code_point = lead & (0xFFu >> (num_bytes + 1));
  for (size_t i = 1; i < num_bytes; ++i) {
    code_point = code_point << 6 | (static_cast<uint8_t>(bytes[begin + i]) & 0x3F);
  }
  return code_point;
}

void AppendChar(uint32_t c, std::string* out) {
  const auto push = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | c >> 6);
    push(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    push(0xE0 | c >> 12);
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  } else {
    push(0xF0 | c >> 18);
    push(0x80 | (c >> 12 & 0x3F));
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  }
}

bool IsSpace(uint32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

uint32_t UpperChar(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  if (c == 0xB5) return 0x39C;
  if (c == 0xFF) return 0x178;
  if (c >= 0xE0 && c <= 0xFE && c != 0xF7) return c - 32;
  if (c == 0x131) return 'I';
  // Latin Extended-A holds its pairs side by side; which of the two is the capital changes at 0x139 and at 0x14A.
  if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E)) return c % 2 == 0 ? c - 1 : c;
  if (c >= 0x100 && c <= 0x177 && c != 0x130 && c != 0x138 && c != 0x149) return c & ~1u;
  if (c >= 0x3B1 && c <= 0x3C9) return c == 0x3C2 ? 0x3A3 : c - 32;
  if (c == 0x3AC) return 0x386;
  if (c >= 0x3AD && c <= 0x3AF) return c - 37;
  if (c == 0x3CC) return 0x38C;
  if (c == 0x3CD || c == 0x3CE) return c - 63;
  if (c >= 0x430 && c <= 0x44F) return c - 32;
  if (c >= 0x450 && c <= 0x45F) return c - 80;
  return c;
}

uint32_t LowerChar(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c == 0x178) return 0xFF;
  if (c >= 0xC0 && c <= 0xDE && c != 0xD7) return c + 32;
  if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E)) return c % 2 == 1 ? c + 1 : c;
  if (c >= 0x100 && c <= 0x177 && c != 0x130 && c != 0x131 && c != 0x138 && c != 0x149) return c | 1u;
  if (c >= 0x391 && c <= 0x3A9 && c != 0x3A2) return c + 32;
  if (c == 0x386) return 0x3AC;
  if (c >= 0x388 && c <= 0x38A) return c + 37;
  if (c == 0x38C) return 0x3CC;
  if (c == 0x38E || c == 0x38F) return c + 63;
  if (c >= 0x410 && c <= 0x42F) return c + 32;
  if (c >= 0x400 && c <= 0x40F) return c + 80;
  return c;
}

Text MapChars(const Text& text, uint32_t (*map)(uint32_t)) {
  Text out;
  for (const TextPart& part : text.Parts()) {
    std::string mapped;
    mapped.reserve(part.text.size());
    for (size_t at = 0; at < part.text.size();) {
      const size_t end = NextChar(part.text, at);
      const uint32_t c = DecodeChar(part.text, at, end);
      const uint32_t m = map(c);
      if (m == c) {
        mapped.append(part.text, at, end - at);  // also keeps an invalid byte as it is
      } else {
        AppendChar(m, &mapped);
      }
      at = end;
    }
    out.Append(mapped, part.is_input);
  }
  return out;
}

}  // namespace lockstep::tokenizer::jinja
