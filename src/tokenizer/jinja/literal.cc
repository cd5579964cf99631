#include "tokenizer/jinja/literal.h"

#include <fmt/format.h>

#include <charconv>

#include "tokenizer/jinja/text.h"

namespace lockstep::tokenizer::jinja {
namespace {

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

char At(std::string_view text, size_t at) {
  return at < text.size() ? text[at] : '\0';
}

// The escape whose backslash stands before text[*at]: appends what it means and moves *at behind it. Returns the error.
std::string ScanEscape(std::string_view text, size_t* at, std::string* out) {
  const char c = At(text, *at);
  const size_t names = std::string_view("abfnrtv\\'\"").find(c);
  if (c != '\0' && names != std::string_view::npos) {
    *out += "\a\b\f\n\r\t\v\\'\""[names];
    ++*at;
  } else if (c == '\n') {
    ++*at;
  } else if (c >= '0' && c <= '7') {
    uint32_t value = 0;
    for (int i = 0; i < 3 && At(text, *at) >= '0' && At(text, *at) <= '7'; ++i) {
      value = value * 8 + static_cast<uint32_t>(text[(*at)++] - '0');
    }
    AppendChar(value, out);
  } else if (c == 'x' || c == 'u' || c == 'U') {
    const size_t num_digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    uint32_t value = 0;
    for (size_t i = 1; i <= num_digits; ++i) {
      const int d = HexDigit(At(text, *at + i));
      if (d < 0) return fmt::format("the escape \\{} needs {} hexadecimal digits", c, num_digits);
      value = value << 4 | static_cast<uint32_t>(d);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      return fmt::format("the escape \\{} names no character: 0x{:x}", c, value);
    }
    AppendChar(value, out);
    *at += num_digits + 1;
  } else if (c == 'N') {
    return "the escape \\N{name} is not supported";
  } else {
    *out += '\\';  // Python keeps an unknown escape as it is
  }
  return "";
}

}  // namespace

Literal ScanNumber(std::string_view text) {
  Literal literal;
  size_t n = 0;
  std::string digits;
  int base = 10;
  const char prefix = At(text, 0) == '0' ? static_cast<char>(At(text, 1) | 0x20) : '\0';
  if (prefix == 'x' || prefix == 'o' || prefix == 'b') {
    base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
    n = 2;
  }
  const auto take_digits = [&] {
    while (true) {
      const int d = HexDigit(At(text, n));
      const int next = HexDigit(At(text, n + 1));
      if (d >= 0 && d < base)
        digits += text[n++];
      else if (At(text, n) == '_' && next >= 0 && next < base)
        ++n;
      else
        return;
    }
  };
  take_digits();
  bool is_float = false;
  if (base == 10 && At(text, n) == '.' && IsDigit(At(text, n + 1))) {
    is_float = true;
    digits += '.';
    ++n;
    take_digits();
  }
  if (base == 10 && (At(text, n) | 0x20) == 'e') {
    const size_t sign = At(text, n + 1) == '+' || At(text, n + 1) == '-' ? 1 : 0;
    if (IsDigit(At(text, n + 1 + sign))) {
      is_float = true;
      digits += 'e';
      if (sign == 1) digits += text[n + 1];
      n += 1 + sign;
      take_digits();
    }
  }
  literal.token.kind = is_float ? TokenKind::kFloat : TokenKind::kInt;
  const char* const end = digits.data() + digits.size();
  if (is_float) {
    const auto parsed = std::from_chars(digits.data(), end, literal.token.float_value);
    if (parsed.ec != std::errc()) literal.error = fmt::format("the number {} is out of range", digits);
  } else {
    const auto parsed = std::from_chars(digits.data(), end, literal.token.int_value, base);
    if (parsed.ec == std::errc::result_out_of_range) {
      literal.error = fmt::format("the integer {} does not fit 64 bits", digits);
    } else if (parsed.ec != std::errc()) {
      literal.error = "a number has no digits";
    }
  }
  literal.num_bytes = n;
  return literal;
}

Literal ScanString(std::string_view text) {
  Literal literal;
  literal.token.kind = TokenKind::kString;
  const char quote = text[0];
  size_t at = 1;
  while (at < text.size() && text[at] != quote) {
    if (text[at] != '\\') {
      literal.token.text += text[at++];
      continue;
    }
    ++at;
    literal.error = ScanEscape(text, &at, &literal.token.text);
    if (!literal.error.empty()) {
      literal.num_bytes = at;
      return literal;
    }
  }
  if (at >= text.size()) {
    literal.error = "this string has no end";
    return literal;
  }
  literal.num_bytes = at + 1;
  return literal;
}

}  // namespace lockstep::tokenizer::jinja
