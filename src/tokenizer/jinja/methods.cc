#include <algorithm>

#include <fmt/format.h>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/strings.h"

namespace lockstep::tokenizer::jinja {
namespace {

// The str argument i, or null with an error when it is of another type. None counts as not given.
const std::string* StrArg(Evaluator& eval, const Call& call, size_t i) {
  const Value* const v = call.Get(i);
  if (v == nullptr || v->Is(Kind::kNone)) return nullptr;
  if (v->Is(Kind::kString)) return &v->str();
  eval.Fail(fmt::format("a str method needs a str, not {}", TypeName(*v)));
  return nullptr;
}

std::optional<int64_t> IntArg(Evaluator& eval, const Call& call, size_t i, int64_t fallback) {
  const Value* const v = call.Get(i);
  if (v == nullptr) return fallback;
  if (v->IsIntegral()) return v->integer();
  eval.Fail(fmt::format("a str method needs an int, not {}", TypeName(*v)));
  return std::nullopt;
}

template <Sides kSides>
Value StripMethod(Evaluator& eval, const Call& call) {
  const std::string* const chars = StrArg(eval, call, 0);
  if (eval.failed() || !eval.Charge(call.self.weight())) return Value();
  return eval.MakeStr(Strip(call.self.text(), chars, kSides));
}

Value MakeTexts(Evaluator& eval, std::vector<Text> texts) {
  std::vector<Value> items;
  for (Text& text : texts) items.push_back(eval.MakeStr(std::move(text)));
  return eval.MakeList(std::move(items));
}

bool ChargePieces(Evaluator& eval, const std::string& bytes, const std::string* sep) {
  const uint64_t num_pieces = CountPieces(bytes, sep);
  return eval.Charge(num_pieces) && eval.ChargeBytes(num_pieces * 4 * sizeof(Text));
}

template <bool kFromRight>
Value SplitMethod(Evaluator& eval, const Call& call) {
  const std::string* const sep = StrArg(eval, call, 0);
  const std::optional<int64_t> max_split = IntArg(eval, call, 1, -1);
  if (eval.failed()) return Value();
  if (sep != nullptr && sep->empty()) return eval.Fail("empty separator");
  if (!ChargePieces(eval, call.self.str(), sep)) return Value();
  // Searching from the right has no linear form in the library; pay for the worst case.
  const uint64_t num_sep_bytes = sep != nullptr ? sep->size() : 1;
  if (kFromRight && !eval.Charge(call.self.weight() * num_sep_bytes)) return Value();
  const Text& text = call.self.text();
  return MakeTexts(eval, kFromRight ? SplitFromRight(text, sep, *max_split) : Split(text, sep, *max_split));
}

Value SplitLinesMethod(Evaluator& eval, const Call& call) {
  if (!ChargePieces(eval, call.self.str(), nullptr)) return Value();
  return MakeTexts(eval, SplitLines(call.self.text()));
}

template <bool kAtEnd>
Value Affix(Evaluator& eval, const Call& call) {
  const std::string& s = call.self.str();
  std::vector<Value> affixes = {*call.Get(0)};
  if (affixes[0].IsList(ListKind::kTuple)) affixes = std::vector<Value>(affixes[0].list().items);
  for (const Value& affix : affixes) {
    if (!eval.Charge(affix.weight())) return Value();
    if (!affix.Is(Kind::kString)) {
      return eval.Fail(fmt::format("startswith and endswith need a str or a tuple of str, not {}", TypeName(affix)));
    }
    if (kAtEnd ? s.ends_with(affix.str()) : s.starts_with(affix.str())) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool kAtEnd>
Value RemoveAffix(Evaluator& eval, const Call& call) {
  const std::string* const affix = StrArg(eval, call, 0);
  if (eval.failed() || affix == nullptr) return eval.Fail("removeprefix and removesuffix need a str");
  const Text& text = call.self.text();
  const size_t n = affix->size();
  if (kAtEnd && text.bytes().ends_with(*affix)) return eval.MakeStr(text.Slice(0, text.num_bytes() - n));
  if (!kAtEnd && text.bytes().starts_with(*affix)) return eval.MakeStr(text.Slice(n, text.num_bytes()));
  return call.self;
}

Value Upper(Evaluator& eval, const Call& call) {
  return eval.MakeStr(MapChars(call.self.text(), UpperChar));
}
Value Lower(Evaluator& eval, const Call& call) {
  return eval.MakeStr(MapChars(call.self.text(), LowerChar));
}
Value Title(Evaluator& eval, const Call& call) {
  return eval.MakeStr(TitleMethod(call.self.text()));
}
Value CapitalizeMethod(Evaluator& eval, const Call& call) {
  return eval.MakeStr(Capitalize(call.self.text()));
}

Value ReplaceMethod(Evaluator& eval, const Call& call) {
  const std::optional<int64_t> count = IntArg(eval, call, 2, -1);
  if (!call.Get(0)->Is(Kind::kString) || !call.Get(1)->Is(Kind::kString)) return eval.Fail("replace needs two str");
  if (eval.failed() || !eval.Charge(call.self.weight())) return Value();
  std::optional<Text> out =
      Replace(call.self.text(), call.Get(0)->text(), call.Get(1)->text(), *count, eval.limits().max_output_bytes);
  if (!out) return eval.Fail(fmt::format("a string is longer than {} bytes", eval.limits().max_output_bytes));
  return eval.MakeStr(std::move(*out));
}

template <bool kFromRight>
Value Find(Evaluator& eval, const Call& call) {
  const std::string* const needle = StrArg(eval, call, 0);
  if (eval.failed() || needle == nullptr) return eval.Fail("find needs a str");
  if (!eval.Charge(call.self.weight())) return Value();
  const std::string& s = call.self.str();
  if (kFromRight && !eval.Charge(call.self.weight() * (needle->size() + 1))) return Value();
  const size_t at = kFromRight ? s.rfind(*needle) : FindBytes(s, *needle, 0);
  if (at == std::string::npos) return Value::Int(-1);
  return Value::Int(static_cast<int64_t>(CountChars(std::string_view(s).substr(0, at))));
}

Value Count(Evaluator& eval, const Call& call) {
  const std::string* const needle = StrArg(eval, call, 0);
  if (eval.failed() || needle == nullptr) return eval.Fail("count needs a str");
  if (!eval.Charge(call.self.weight())) return Value();
  const std::string& s = call.self.str();
  if (needle->empty()) return Value::Int(static_cast<int64_t>(CountChars(s)) + 1);
  int64_t num_found = 0;
  for (size_t at = FindBytes(s, *needle, 0); at != std::string::npos; at = FindBytes(s, *needle, at + needle->size()))
    ++num_found;
  return Value::Int(num_found);
}

Value JoinMethod(Evaluator& eval, const Call& call) {
  std::vector<Value> items;
  if (!eval.Iterate(*call.Get(0), &items)) return Value();
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].Is(Kind::kString)) {
      return eval.Fail(fmt::format("sequence item {}: expected str instance, {} found", i, TypeName(items[i])));
    }
    if (i > 0) out.Append(call.self.text());
    out.Append(items[i].text());
    if (out.num_bytes() > eval.limits().max_output_bytes) break;  // MakeStr reports it
  }
  return eval.MakeStr(std::move(out));
}

Value IsDigit(Evaluator&, const Call& call) {
  const std::string& s = call.self.str();
  return Value::Bool(!s.empty() && s.find_first_not_of("0123456789") == std::string::npos);
}

Value IsSpaceMethod(Evaluator&, const Call& call) {
  return Value::Bool(!call.self.str().empty() && Strip(call.self.text(), nullptr, Sides::kBoth).empty());
}

Value DictItems(Evaluator& eval, const Call& call) {
  std::vector<Value> items;
  for (const auto& [key, value] : call.self.dict().entries) {
    items.push_back(eval.MakeList({key, value}, ListKind::kTuple));
  }
  return eval.MakeList(std::move(items), ListKind::kItems);
}

Value DictKeys(Evaluator& eval, const Call& call) {
  std::vector<Value> items;
  for (const auto& entry : call.self.dict().entries) items.push_back(entry.first);
  return eval.MakeList(std::move(items), ListKind::kKeys);
}

Value DictValues(Evaluator& eval, const Call& call) {
  std::vector<Value> items;
  for (const auto& entry : call.self.dict().entries) items.push_back(entry.second);
  return eval.MakeList(std::move(items), ListKind::kValues);
}

Value DictGet(Evaluator& eval, const Call& call) {
  if (!eval.Charge(call.Get(0)->weight())) return Value();
  const Value* const found = call.self.dict().Find(*call.Get(0));
  if (found != nullptr) return *found;
  return call.Get(1) != nullptr ? *call.Get(1) : Value::None();
}

Value Same(Evaluator&, const Call& call) {
  return call.self;
}  // a copy of what never changes

Value ListIndex(Evaluator& eval, const Call& call) {
  const std::vector<Value>& items = call.self.list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (eval.EqualValues(items[i], *call.Get(0))) return Value::Int(static_cast<int64_t>(i));
  }
  return eval.Fail("the value is not in the list");
}

Value ListCount(Evaluator& eval, const Call& call) {
  int64_t num_found = 0;
  for (const Value& item : call.self.list().items) num_found += eval.EqualValues(item, *call.Get(0)) ? 1 : 0;
  return Value::Int(num_found);
}

Value Refused(Evaluator& eval, const Call& call) {
  return eval.Fail(fmt::format("a template may not change a {}", TypeName(call.self)));
}

const std::vector<Builtin>& StringMethods() {
  static const std::vector<Builtin> table = {
      {"strip", 0, {"chars"}, StripMethod<Sides::kBoth>},
      {"lstrip", 0, {"chars"}, StripMethod<Sides::kLeft>},
      {"rstrip", 0, {"chars"}, StripMethod<Sides::kRight>},
      {"split", 0, {"sep", "maxsplit"}, SplitMethod<false>},
      {"rsplit", 0, {"sep", "maxsplit"}, SplitMethod<true>},
      {"splitlines", 0, {}, SplitLinesMethod},
      {"startswith", 1, {"prefix"}, Affix<false>},
      {"endswith", 1, {"suffix"}, Affix<true>},
      {"removeprefix", 1, {"prefix"}, RemoveAffix<false>},
      {"removesuffix", 1, {"suffix"}, RemoveAffix<true>},
      {"upper", 0, {}, Upper},
      {"lower", 0, {}, Lower},
      {"title", 0, {}, Title},
      {"capitalize", 0, {}, CapitalizeMethod},
      {"replace", 2, {"old", "new", "count"}, ReplaceMethod},
      {"find", 1, {"sub"}, Find<false>},
      {"rfind", 1, {"sub"}, Find<true>},
      {"count", 1, {"sub"}, Count},
      {"join", 1, {"iterable"}, JoinMethod},
      {"isdigit", 0, {}, IsDigit},
      {"isspace", 0, {}, IsSpaceMethod},
  };
  return table;
}

const std::vector<Builtin>& DictMethods() {
  static const std::vector<Builtin> table = {
      {"items", 0, {}, DictItems},
      {"keys", 0, {}, DictKeys},
      {"values", 0, {}, DictValues},
      {"get", 1, {"key", "default"}, DictGet},
      {"copy", 0, {}, Same},
      {"pop", 0, {}, Refused, true},
      {"popitem", 0, {}, Refused, true},
      {"clear", 0, {}, Refused, true},
      {"update", 0, {}, Refused, true},
      {"setdefault", 0, {}, Refused, true},
  };
  return table;
}

const std::vector<Builtin>& ListMethods() {
  static const std::vector<Builtin> table = {
      {"index", 1, {"value"}, ListIndex}, {"count", 1, {"value"}, ListCount}, {"copy", 0, {}, Same},
      {"append", 0, {}, Refused, true},   {"extend", 0, {}, Refused, true},   {"insert", 0, {}, Refused, true},
      {"pop", 0, {}, Refused, true},      {"remove", 0, {}, Refused, true},   {"clear", 0, {}, Refused, true},
      {"reverse", 0, {}, Refused, true},  {"sort", 0, {}, Refused, true},
  };
  return table;
}

}  // namespace

const Builtin* FindMethod(const Value& self, std::string_view name) {
  if (self.Is(Kind::kString)) return FindIn(StringMethods(), name);
  if (self.Is(Kind::kDict)) return FindIn(DictMethods(), name);
  if (self.IsList(ListKind::kList) || self.IsList(ListKind::kTuple)) return FindIn(ListMethods(), name);
  return nullptr;
}

}  // namespace lockstep::tokenizer::jinja
