#include "tokenizer/byte_level.h"

#include <array>

#include "tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr uint32_t kNumLetters = 0x100 + 68;  // the last letter stands for 0xAD

struct Tables {
  std::array<uint16_t, 256> letter{};
  std::array<int16_t, kNumLetters> byte{};  // -1 = no letter
};

constexpr Tables MakeTables() {
  Tables t;
  for (auto& byte : t.byte) byte = -1;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t letter = StandsForItself(byte) ? byte : next++;
    t.letter[byte] = static_cast<uint16_t>(letter);
    t.byte[letter] = static_cast<int16_t>(byte);
  }
  return t;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t ByteLevelLetter(uint8_t byte) {
  return kTables.letter[byte];
}

std::optional<std::string> DecodeByteLevel(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t pos = 0; pos < token.size();) {
    if (const auto byte = static_cast<uint8_t>(token[pos]); byte < 0x80) {  // nearly all letters are ASCII
      if (kTables.byte[byte] < 0) return std::nullopt;
      bytes.push_back(static_cast<char>(kTables.byte[byte]));
      ++pos;
      continue;
    }
    const Utf8Char c = DecodeUtf8(token, pos);
    if (c.code_point >= kNumLetters || kTables.byte[c.code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kTables.byte[c.code_point]));
    pos += c.num_bytes;
  }
  return bytes;
}

std::string EncodeByteLevel(std::string_view bytes) {
  std::string token;
  token.reserve(bytes.size() * 2);
  for (char byte : bytes) AppendUtf8(ByteLevelLetter(static_cast<uint8_t>(byte)), &token);
  return token;
}

}  // namespace lockstep::tokenizer
