#include "tokenizer/quote.h"

#include <fmt/format.h>

#include "tokenizer/unicode.h"

namespace lockstep::tokenizer {

std::string Quote(std::string_view text) {
  constexpr size_t kMaxBytes = 64;  // enough to recognise a token; a file may hold one of megabytes
  std::string out = "\"";
  size_t pos = 0;
  while (pos < text.size() && pos < kMaxBytes) {
    const Utf8Char c = DecodeUtf8(text, pos);
    const bool plain = c.code_point != kInvalidByte && c.code_point >= 0x20 &&
                       !(c.code_point >= 0x7F && c.code_point < 0xA0) && c.code_point != '"' && c.code_point != '\\' &&
                       c.code_point != 0x2028 && c.code_point != 0x2029;
    for (char byte : text.substr(pos, c.num_bytes)) {
      if (plain) {
        out.push_back(byte);
      } else {
        out += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
      }
    }
    pos += c.num_bytes;
  }
  out += pos < text.size() ? "...\"" : "\"";
  return out;
}

}  // namespace lockstep::tokenizer
