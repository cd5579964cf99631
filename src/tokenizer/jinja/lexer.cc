#include "tokenizer/jinja/lexer.h"

#include <fmt/format.h>

#include "tokenizer/jinja/literal.h"
#include "tokenizer/jinja/text.h"

namespace lockstep::tokenizer::jinja {
namespace {

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}
bool IsAsciiSpace(char c) {
  return IsSpace(static_cast<uint8_t>(c)) && static_cast<uint8_t>(c) < 0x80;
}

// One kind of line end, and without the last one: Jinja drops a single newline at the end of a template.
std::string NormaliseLines(const std::string& source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(NormaliseLines(source)) {}
  Result<std::vector<Token>> Run();

 private:
  Status Root();
  Status Comment();
  Status Inside(bool is_block);
  Status TakeLiteral(Literal literal);
  Status Operator(std::string* brackets);
  // When the tag at pos_ is {% raw %}, emits its body as data and returns true.
  Result<bool> Raw();
  void Data(size_t begin, size_t end, char sign, bool strips_line);
  void SkipTagEnd(char sign);
  bool EndsHere(const char* mark, char* sign) const;

  std::string_view Rest() const { return std::string_view(source_).substr(pos_); }
  bool At(std::string_view text) const { return std::string_view(source_).substr(pos_, text.size()) == text; }
  char Peek(size_t ahead = 0) const { return pos_ + ahead < source_.size() ? source_[pos_ + ahead] : '\0'; }
  void Advance(size_t num_bytes) {
    for (size_t i = 0; i < num_bytes && pos_ < source_.size(); ++i) {
      if (source_[pos_++] == '\n') ++line_;
    }
  }
  void SkipSpaces() {
    while (pos_ < source_.size() && IsAsciiSpace(source_[pos_])) Advance(1);
  }
  void Emit(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text), 0, 0}); }
  Status Error(const std::string& what) const {
    return InvalidArgument(fmt::format("template line {}: {}", line_, what));
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  // nothing but the tag before stands on this line
  std::vector<Token> tokens_;
};

// Text up to a tag. '-' takes all white space before the tag; a block or comment without '+' takes the indentation.
void Lexer::Data(size_t begin, size_t end, char sign, bool strips_line) {
  const std::string_view text = std::string_view(source_).substr(begin, end - begin);
  size_t keep = text.size();
  if (sign == '-') {
    const std::vector<size_t> starts = CharStarts(text);
    size_t n = starts.size() - 1;
    while (n > 0 && IsSpace(DecodeChar(text, starts[n - 1], starts[n]))) --n;
    keep = starts[n];
  } else if (strips_line && sign != '+') {
    const size_t newline = text.rfind('\n');
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (newline != std::string_view::npos || at_line_start_) {
      bool only_space = true;
      for (size_t i = line_begin; i < text.size(); ++i) only_space = only_space && IsAsciiSpace(text[i]);
      if (only_space) keep = line_begin;
    }
  }
  if (keep > 0) Emit(TokenKind::kData, std::string(text.substr(0, keep)));
  Advance(text.size());
}

// After "%}" or "#}": '-' takes all white space, none takes one newline, '+' nothing.
void Lexer::SkipTagEnd(char sign) {
  if (sign == '-') {
    SkipSpaces();
  } else if (sign != '+' && Peek() == '\n') {
    Advance(1);
  }
  at_line_start_ = pos_ > 0 && source_[pos_ - 1] == '\n';
}

bool Lexer::EndsHere(const char* mark, char* sign) const {
  if (At(mark)) {
    *sign = '\0';
    return true;
  }
  if ((Peek() == '-' || Peek() == '+') && std::string_view(source_).substr(pos_ + 1, 2) == mark) {
    *sign = Peek();
    // "+}}" is an addition without a right side, not an end.
    return *sign == '-' || mark[0] != '}';
  }
  return false;
}

Status Lexer::Comment() {
  const int line = line_;
  Advance(2);
  const size_t close = source_.find("#}", pos_);
  if (close == std::string::npos) {
    line_ = line;
    return Error("this comment has no end '#}'");
  }
  const char sign = close > pos_ ? source_[close - 1] : '\0';
  Advance(close + 2 - pos_);
  SkipTagEnd(sign == '-' || sign == '+' ? sign : '\0');
  return OkStatus();
}

Result<bool> Lexer::Raw() {
  // pos_ is behind "{%" and its sign.
  size_t at = pos_;
  const auto skip = [&] {
    while (at < source_.size() && IsAsciiSpace(source_[at])) ++at;
  };
  const auto take = [&](std::string_view text) {
    if (std::string_view(source_).substr(at, text.size()) != text) return false;
    at += text.size();
    return true;
  };
  skip();
  if (!take("raw")) return false;
  skip();
  const bool strips_after = take("-%}");
  if (!strips_after && !take("%}")) return false;
  const int line = line_;
  Advance(at - pos_);
  // Unlike other tags, this one takes no newline.
  if (strips_after) SkipSpaces();
  at_line_start_ = source_[pos_ - 1] == '\n';
  const size_t begin = pos_;
  for (size_t open = source_.find("{%", pos_); open != std::string::npos; open = source_.find("{%", open + 1)) {
    at = open + 2;
    char sign = '\0';
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) sign = source_[at++];
    skip();
    if (!take("endraw")) continue;
    skip();
    char end_sign = '\0';
    if (take("-%}"))
      end_sign = '-';
    else if (take("+%}"))
      end_sign = '+';
    else if (!take("%}"))
      continue;
    Data(begin, open, sign, true);
    Advance(at - pos_);
    SkipTagEnd(end_sign);
    return true;
  }
  line_ = line;
  return Error("this 'raw' block has no 'endraw'");
}

Status Lexer::Root() {
  const size_t begin = pos_;
  size_t open = source_.find('{', pos_);
  while (open != std::string::npos && open + 1 < source_.size()) {
    const char next = source_[open + 1];
    if (next == '{' || next == '%' || next == '#') break;
    open = source_.find('{', open + 1);
  }
  if (open == std::string::npos || open + 1 >= source_.size()) {
    Emit(TokenKind::kData, source_.substr(begin));
    Advance(source_.size() - begin);
    return OkStatus();
  }
  const char kind = source_[open + 1];
  char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
  if (sign != '-' && sign != '+') sign = '\0';
  Data(begin, open, sign, kind != '{');
  if (kind == '#') return Comment();
  Advance(sign == '\0' ? 2 : 3);
  if (kind == '%') {
    LS_ASSIGN_OR_RETURN(const bool is_raw, Raw());
    if (is_raw) return OkStatus();
  }
  Emit(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin, "");
  return Inside(kind == '%');
}

Status Lexer::Inside(bool is_block) {
  std::string brackets;  // the closing ones still to come
  const int first_line = line_;
  while (true) {
    SkipSpaces();
    if (pos_ >= source_.size()) {
      line_ = first_line;
      return Error(is_block ? "this tag has no end '%}'" : "this expression has no end '}}'");
    }
    char sign = '\0';
    if (brackets.empty() && EndsHere(is_block ? "%}" : "}}", &sign)) {
      Emit(is_block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd, "");
      Advance(sign == '\0' ? 2 : 3);
      // An expression's end takes no newline, but "-}}" takes all white space.
      if (is_block || sign == '-')
        SkipTagEnd(sign);
      else
        at_line_start_ = false;
      return OkStatus();
    }
    const char c = Peek();
    if (IsNameStart(c)) {
      size_t n = 1;
      while (IsNameStart(Peek(n)) || IsDigit(Peek(n))) ++n;
      Emit(TokenKind::kName, source_.substr(pos_, n));
      Advance(n);
    } else if (IsDigit(c)) {
      LS_RETURN_IF_ERROR(TakeLiteral(ScanNumber(Rest())));
    } else if (c == '\'' || c == '"') {
      LS_RETURN_IF_ERROR(TakeLiteral(ScanString(Rest())));
    } else {
      LS_RETURN_IF_ERROR(Operator(&brackets));
    }
  }
}

Status Lexer::Operator(std::string* brackets) {
  for (const char* two : {"//", "**", "==", "!=", "<=", ">="}) {
    if (At(two)) {
      Emit(TokenKind::kOperator, two);
      Advance(2);
      return OkStatus();
    }
  }
  const char c = Peek();
  if (std::string_view("+-*/%~[](){}<>=.:|,;").find(c) == std::string_view::npos || c == '\0') {
    return Error(fmt::format("unexpected character 0x{:02x} in a tag", static_cast<uint8_t>(c)));
  }
  if (c == '(') brackets->push_back(')');
  if (c == '[') brackets->push_back(']');
  if (c == '{') brackets->push_back('}');
  if (c == ')' || c == ']' || c == '}') {
    if (brackets->empty()) return Error(fmt::format("unexpected '{}'", c));
    if (brackets->back() != c) return Error(fmt::format("unexpected '{}', expected '{}'", c, brackets->back()));
    brackets->pop_back();
  }
  Emit(TokenKind::kOperator, std::string(1, c));
  Advance(1);
  return OkStatus();
}

Status Lexer::TakeLiteral(Literal literal) {
  literal.token.line = line_;
  Advance(literal.num_bytes);
  if (!literal.error.empty()) return Error(literal.error);
  tokens_.push_back(std::move(literal.token));
  return OkStatus();
}

Result<std::vector<Token>> Lexer::Run() {
  while (pos_ < source_.size()) LS_RETURN_IF_ERROR(Root());
  Emit(TokenKind::kEnd, "");
  return std::move(tokens_);
}

}  // namespace

Result<std::vector<Token>> Tokenize(const std::string& source) {
  return Lexer(source).Run();
}

}  // namespace lockstep::tokenizer::jinja
