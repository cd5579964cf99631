#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/print.h"
#include "tokenizer/jinja/strings.h"

namespace lockstep::tokenizer::jinja {
namespace {

Value Trim(Evaluator& eval, const Call& call) {
  const Value* const chars = call.Get(0);
  if (chars == nullptr || chars->Is(Kind::kNone))
    return eval.MakeStr(Strip(eval.Str(call.self), nullptr, Sides::kBoth));
  if (!chars->Is(Kind::kString)) return eval.Fail("trim needs a str");
  return eval.MakeStr(Strip(eval.Str(call.self), &chars->str(), Sides::kBoth));
}

Value Upper(Evaluator& eval, const Call& call) {
  return eval.MakeStr(MapChars(eval.Str(call.self), UpperChar));
}
Value Lower(Evaluator& eval, const Call& call) {
  return eval.MakeStr(MapChars(eval.Str(call.self), LowerChar));
}
Value Title(Evaluator& eval, const Call& call) {
  return eval.MakeStr(TitleFilter(eval.Str(call.self)));
}
Value CapitalizeFilter(Evaluator& eval, const Call& call) {
  return eval.MakeStr(Capitalize(eval.Str(call.self)));
}
Value String(Evaluator& eval, const Call& call) {
  return eval.MakeStr(eval.Str(call.self));
}

Value ReplaceFilter(Evaluator& eval, const Call& call) {
  int64_t count = -1;
  if (const Value* const limit = call.Get(2); limit != nullptr && !limit->Is(Kind::kNone)) {
    if (!limit->IsIntegral()) return eval.Fail("replace needs an int as its count");
    count = limit->integer();
  }
  std::optional<Text> out = Replace(eval.Str(call.self), eval.Str(*call.Get(0)), eval.Str(*call.Get(1)), count,
                                    eval.limits().max_output_bytes);
  if (!out) return eval.Fail(fmt::format("a string is longer than {} bytes", eval.limits().max_output_bytes));
  return eval.MakeStr(std::move(*out));
}

Value Indent(Evaluator& eval, const Call& call) {
  if (call.self.Is(Kind::kUndefined)) return eval.Fail(call.self.reason());
  if (!call.self.Is(Kind::kString)) return eval.Fail(fmt::format("indent needs a str, not {}", TypeName(call.self)));
  Text indention("    ", false);
  if (const Value* const width = call.Get(0); width != nullptr) {
    if (width->Is(Kind::kString)) {
      indention = width->text();
    } else if (width->IsIntegral() && width->integer() <= 10'000) {  // far above any indentation; bounds the product
      indention = Text(std::string(static_cast<size_t>(std::max<int64_t>(0, width->integer())), ' '), false);
    } else {
      return eval.Fail("indent needs a str or an int up to 10000 as its width");
    }
  }
  const bool first = call.Flag(1);
  const bool blank = call.Flag(2);
  Text source = call.self.text();
  source.Append("\n", false);  // so that a line end at the end makes an empty last line
  const std::vector<Text> lines = SplitLines(source);
  if (!eval.Charge(lines.size())) return Value();
  Text out;
  if (first) out.Append(indention);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out.Append("\n", false);
      if (blank || !lines[i].empty()) out.Append(indention);
    }
    out.Append(lines[i]);
    if (out.num_bytes() > eval.limits().max_output_bytes) break;  // MakeStr reports it
  }
  return eval.MakeStr(std::move(out));
}

// Python's int(str) and float(str): white space around, one sign, underscores between digits.
std::string NumberText(const std::string& s) {
  const std::string trimmed = Strip(Text(s, false), nullptr, Sides::kBoth).bytes();
  std::string out;
  for (size_t i = 0; i < trimmed.size(); ++i) {
    const auto is_digit = [&](size_t at) {
      return at < trimmed.size() && std::isalnum(static_cast<uint8_t>(trimmed[at])) != 0;
    };
    if (trimmed[i] == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1)) continue;
    if (trimmed[i] == '+' && i == 0 && is_digit(1)) continue;  // from_chars knows no plus
    out += trimmed[i];
  }
  return out;
}

template <typename T, typename... Base>
bool ParseNumber(const std::string& s, T* out, Base... base) {
  const char* const end = s.data() + s.size();
  const auto parsed = std::from_chars(s.data(), end, *out, base...);
  return parsed.ec == std::errc() && parsed.ptr == end && !s.empty();
}

Value Int(Evaluator& eval, const Call& call) {
  const Value fallback = call.Get(0) != nullptr ? *call.Get(0) : Value::Int(0);
  const Value& v = call.self;
  if (v.Is(Kind::kUndefined)) return eval.Fail(v.reason());
  const bool is_input = HasInput(v);
  if (v.IsIntegral()) return Value::Int(v.integer(), is_input);
  double number = 0;
  if (v.Is(Kind::kFloat)) {
    number = v.number();
  } else if (v.Is(Kind::kString)) {
    const int64_t base = call.Get(1) != nullptr && call.Get(1)->IsIntegral() ? call.Get(1)->integer() : 10;
    if (base < 2 || base > 36) return eval.Fail("int needs a base from 2 to 36");
    std::string digits = NumberText(v.str());
    if (base != 10 && digits.size() > 2 && digits[0] == '0' && std::isalpha(static_cast<uint8_t>(digits[1])) != 0) {
      digits = digits.substr(2);
    }
    int64_t integer = 0;
    if (ParseNumber(digits, &integer, static_cast<int>(base))) return Value::Int(integer, is_input);
    if (!ParseNumber(NumberText(v.str()), &number)) return fallback;
  } else {
    return fallback;
  }
  if (std::isnan(number) || std::fabs(number) >= 9.2e18) return fallback;
  return Value::Int(static_cast<int64_t>(number), is_input);
}

Value Float(Evaluator& eval, const Call& call) {
  const Value fallback = call.Get(0) != nullptr ? *call.Get(0) : Value::Float(0);
  const Value& v = call.self;
  if (v.Is(Kind::kUndefined)) return eval.Fail(v.reason());
  if (v.IsNumber()) return Value::Float(v.number(), HasInput(v));
  double number = 0;
  if (!v.Is(Kind::kString) || !ParseNumber(NumberText(v.str()), &number)) return fallback;
  return Value::Float(number, HasInput(v));
}

Value Abs(Evaluator& eval, const Call& call) {
  const Value& v = call.self;
  if (v.Is(Kind::kUndefined)) return eval.Fail(v.reason());
  if (!v.IsNumber()) return eval.Fail(fmt::format("bad operand type for abs(): '{}'", TypeName(v)));
  if (v.Is(Kind::kFloat)) return Value::Float(std::fabs(v.number()), HasInput(v));
  if (v.integer() == INT64_MIN) return eval.Fail("the absolute value does not fit 64 bits");
  return Value::Int(std::abs(v.integer()), HasInput(v));
}

Value Round(Evaluator& eval, const Call& call) {
  const Value& v = call.self;
  if (v.Is(Kind::kUndefined)) return eval.Fail(v.reason());
  if (!v.IsNumber()) return eval.Fail(fmt::format("round needs a number, not {}", TypeName(v)));
  const int64_t precision = call.Get(0) != nullptr && call.Get(0)->IsIntegral() ? call.Get(0)->integer() : 0;
  if (precision < 0 || precision > 15) return eval.Fail("round needs a precision from 0 to 15");
  if (v.IsIntegral()) return v;
  // The nearest decimal is what the shortest text of that many digits says, as Python rounds too.
  return Value::Float(std::strtod(fmt::format("{:.{}f}", v.number(), precision).c_str(), nullptr), HasInput(v));
}

Value ToJsonFilter(Evaluator& eval, const Call& call) {
  JsonStyle style;
  style.ensure_ascii = call.Flag(0);
  const Value* const indent = call.Get(1);
  if (indent != nullptr && !indent->Is(Kind::kNone)) {
    style.has_indent = true;
    if (indent->Is(Kind::kString)) {
      style.indent = indent->str();
    } else if (indent->IsIntegral() && indent->integer() <= 100) {  // above any use; bounds the product with the depth
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(0, indent->integer())), ' ');
    } else {
      return eval.Fail("tojson needs a str or an int up to 100 as its indent");
    }
  }
  style.item_separator = style.has_indent ? "," : ", ";
  style.key_separator = ": ";
  const Value* const separators = call.Get(2);
  if (separators != nullptr && !separators->Is(Kind::kNone)) {
    std::vector<Value> items;
    if (!eval.Iterate(*separators, &items)) return Value();
    if (items.size() != 2 || !items[0].Is(Kind::kString) || !items[1].Is(Kind::kString)) {
      return eval.Fail("tojson needs two strings as its separators");
    }
    style.item_separator = items[0].str();
    style.key_separator = items[1].str();
  }
  style.sort_keys = call.Flag(3);
  if (!eval.Charge(call.self.weight())) return Value();
  Result<Text> text = ToJson(call.self, style, eval.limits().max_output_bytes);
  if (!text.ok()) return eval.FailStatus(text.status());
  return eval.MakeStr(std::move(text).value());
}

}  // namespace

const std::vector<Builtin>& StringFilters() {
  static const std::vector<Builtin> table = {
      {"trim", 0, {"chars"}, Trim},
      {"upper", 0, {}, Upper},
      {"lower", 0, {}, Lower},
      {"title", 0, {}, Title},
      {"capitalize", 0, {}, CapitalizeFilter},
      {"string", 0, {}, String},
      {"safe", 0, {}, String},  // nothing is escaped, so everything is safe
      {"replace", 2, {"old", "new", "count"}, ReplaceFilter},
      {"indent", 0, {"width", "first", "blank"}, Indent},
      {"int", 0, {"default", "base"}, Int},
      {"float", 0, {"default"}, Float},
      {"abs", 0, {}, Abs},
      {"round", 0, {"precision"}, Round},
      {"tojson", 0, {"ensure_ascii", "indent", "separators", "sort_keys"}, ToJsonFilter},
  };
  return table;
}

}  // namespace lockstep::tokenizer::jinja
