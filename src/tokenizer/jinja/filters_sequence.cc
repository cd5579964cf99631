#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/evaluator.h"

namespace lockstep::tokenizer::jinja {
namespace {

Value Length(Evaluator& eval, const Call& call) {
  const Value& v = call.self;
  switch (v.kind()) {
    case Kind::kUndefined:
      return Value::Int(0);
    case Kind::kString:
      eval.Charge(v.weight());
      return Value::Int(static_cast<int64_t>(CountChars(v.str())));
    case Kind::kDict:
      return Value::Int(static_cast<int64_t>(v.dict().entries.size()));
    case Kind::kList:
      if (v.list().kind != ListKind::kGenerator) return Value::Int(static_cast<int64_t>(v.list().items.size()));
      break;
    default:
      break;
  }
  return eval.Fail(fmt::format("object of type '{}' has no len()", TypeName(v)));
}

Value Default(Evaluator& eval, const Call& call) {
  const bool is_replaced = call.self.Is(Kind::kUndefined) || (call.Flag(1) && !IsTrue(call.self));
  if (!is_replaced) return call.self;
  return call.Get(0) != nullptr ? *call.Get(0) : eval.MakeStr(Text());
}

Value Join(Evaluator& eval, const Call& call) {
  std::vector<Value> items;
  if (!eval.Iterate(call.self, &items)) return Value();
  const Text separator = call.Get(0) != nullptr ? eval.Str(*call.Get(0)) : Text();
  Text out;
  for (size_t i = 0; i < items.size() && !eval.failed(); ++i) {
    if (i > 0) out.Append(separator);
    out.Append(eval.Str(call.Get(1) != nullptr ? eval.GetPath(items[i], *call.Get(1)) : items[i]));
    if (out.num_bytes() > eval.limits().max_output_bytes) break;  // MakeStr reports it
  }
  return eval.MakeStr(std::move(out));
}

Value First(Evaluator& eval, const Call& call) {
  if (call.self.IsList(ListKind::kGenerator)) {
    ListObject& list = call.self.mutable_list();
    if (list.next_idx < list.items.size()) return list.items[list.next_idx++];
    return Value::Undefined("no first item, the sequence was empty");
  }
  std::vector<Value> items;
  if (!eval.Iterate(call.self, &items)) return Value();
  return items.empty() ? Value::Undefined("no first item, the sequence was empty") : items.front();
}

Value Last(Evaluator& eval, const Call& call) {
  if (call.self.IsList(ListKind::kGenerator)) return eval.Fail("'generator' object is not reversible");
  std::vector<Value> items;
  if (!eval.Iterate(call.self, &items)) return Value();
  return items.empty() ? Value::Undefined("no last item, the sequence was empty") : items.back();
}

Value List(Evaluator& eval, const Call& call) {
  std::vector<Value> items;
  if (!eval.Iterate(call.self, &items)) return Value();
  return eval.MakeList(std::move(items));
}

Value Reverse(Evaluator& eval, const Call& call) {
  std::vector<Value> items;
  if (!eval.Iterate(call.self, &items)) return Value();
  std::reverse(items.begin(), items.end());
  if (!call.self.Is(Kind::kString)) return eval.MakeList(std::move(items), ListKind::kGenerator);
  Text out;
  for (const Value& item : items) out.Append(item.text());
  return eval.MakeStr(std::move(out));
}

Value Items(Evaluator& eval, const Call& call) {
  if (call.self.Is(Kind::kUndefined)) return eval.MakeList({}, ListKind::kGenerator);
  if (!call.self.Is(Kind::kDict)) return eval.Fail("can only get item pairs from a mapping");
  std::vector<Value> items;
  for (const auto& [key, value] : call.self.dict().entries) {
    items.push_back(eval.MakeList({key, value}, ListKind::kTuple));
  }
  return eval.MakeList(std::move(items), ListKind::kGenerator);
}

// The key that sort, unique and dictsort compare: an attribute of the item, in lower case unless case matters.
Value SortKey(Evaluator& eval, const Value& item, const Value* attribute, bool is_case_sensitive) {
  Value key = attribute != nullptr && !attribute->Is(Kind::kNone) ? eval.GetPath(item, *attribute) : item;
  if (!is_case_sensitive && key.Is(Kind::kString)) return eval.MakeStr(MapChars(key.text(), LowerChar));
  return key;
}

using Keyed = std::pair<Value, Value>;

Value SortKeyed(Evaluator& eval, std::vector<Keyed> keyed, bool is_reversed) {
  // After an error Less is always false, which stays a valid order for the rest of the sort.
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return is_reversed ? eval.Less(b.first, a.first) : eval.Less(a.first, b.first);
  });
  std::vector<Value> out;
  for (Keyed& k : keyed) out.push_back(std::move(k.second));
  return eval.MakeList(std::move(out));
}

Value Sort(Evaluator& eval, const Call& call) {
  std::vector<Value> items;
  if (!eval.Iterate(call.self, &items)) return Value();
  std::vector<Keyed> keyed;
  for (const Value& item : items) keyed.emplace_back(SortKey(eval, item, call.Get(2), call.Flag(1)), item);
  return SortKeyed(eval, std::move(keyed), call.Flag(0));
}

Value DictSort(Evaluator& eval, const Call& call) {
  if (!call.self.Is(Kind::kDict)) return eval.Fail("dictsort needs a mapping");
  const bool by_value = call.Get(1) != nullptr && call.Get(1)->Is(Kind::kString) && call.Get(1)->str() == "value";
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : call.self.dict().entries) {
    keyed.emplace_back(SortKey(eval, by_value ? value : key, nullptr, call.Flag(0)),
                       eval.MakeList({key, value}, ListKind::kTuple));
  }
  return SortKeyed(eval, std::move(keyed), call.Flag(2));
}

Value Unique(Evaluator& eval, const Call& call) {
  std::vector<Value> items;
  if (!eval.Iterate(call.self, &items)) return Value();
  std::unordered_set<std::string> seen;
  std::vector<Value> out;
  for (Value& item : items) {
    const Value key = SortKey(eval, item, call.Get(1), call.Flag(0));
    if (!eval.Charge(key.weight()) || !eval.ChargeBytes(key.weight() * 64)) return Value();
    std::optional<std::string> hash = HashKey(key);
    if (!hash) return eval.Fail(fmt::format("unhashable type: '{}'", TypeName(key)));
    if (seen.insert(std::move(*hash)).second) out.push_back(std::move(item));
  }
  return eval.MakeList(std::move(out), ListKind::kGenerator);
}

Value Extreme(Evaluator& eval, const Call& call, bool is_max) {
  std::vector<Value> items;
  if (!eval.Iterate(call.self, &items)) return Value();
  if (items.empty()) return Value::Undefined("no aggregated item, the sequence was empty");
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const Value a = SortKey(eval, items[is_max ? best : i], call.Get(1), call.Flag(0));
    const Value b = SortKey(eval, items[is_max ? i : best], call.Get(1), call.Flag(0));
    if (eval.Less(a, b)) best = i;
  }
  return items[best];
}
Value Min(Evaluator& eval, const Call& call) {
  return Extreme(eval, call, false);
}
Value Max(Evaluator& eval, const Call& call) {
  return Extreme(eval, call, true);
}

// map('filter', args...) or map(attribute='name', default=...).
Value Map(Evaluator& eval, const Call& call) {
  std::vector<Value> items;
  if (!eval.Iterate(call.self, &items)) return Value();
  std::vector<Value> out;
  const Args& args = call.args;
  if (args.positional.empty()) {
    const Value* attribute = nullptr;
    const Value* fallback = nullptr;
    for (const auto& [name, value] : args.named) {
      if (name == "attribute")
        attribute = &value;
      else if (name == "default")
        fallback = &value;
      else
        return eval.Fail(fmt::format("'map' takes no argument '{}'", name));
    }
    if (attribute == nullptr) return eval.Fail("map needs a filter's name or an attribute");
    for (const Value& item : items) {
      Value v = eval.GetPath(item, *attribute);
      if (v.Is(Kind::kUndefined) && fallback != nullptr) v = *fallback;
      out.push_back(std::move(v));
    }
    return eval.MakeList(std::move(out), ListKind::kGenerator);
  }
  if (!args.positional[0].Is(Kind::kString)) return eval.Fail("map needs a filter's name");
  const std::string& name = args.positional[0].str();
  const Builtin* const filter = FindFilter(name);
  if (filter == nullptr) return eval.Fail(StatusCode::kUnsupported, fmt::format("unknown filter '{}'", name));
  const Args rest{{args.positional.begin() + 1, args.positional.end()}, args.named};
  for (const Value& item : items) {
    out.push_back(eval.CallBuiltin(*filter, item, rest));
    if (eval.failed()) return Value();
  }
  return eval.MakeList(std::move(out), ListKind::kGenerator);
}

// The items whose test, or truth, is `wanted`. With has_attribute the first argument names what is tested.
Value Choose(Evaluator& eval, const Call& call, bool has_attribute, bool wanted) {
  std::vector<Value> items;
  if (!eval.Iterate(call.self, &items)) return Value();
  const std::vector<Value>& args = call.args.positional;
  const size_t test_idx = has_attribute ? 1 : 0;
  if (has_attribute && args.empty()) return eval.Fail("missing the attribute's name");
  const Builtin* test = nullptr;
  Args rest;
  if (args.size() > test_idx) {
    if (!args[test_idx].Is(Kind::kString)) return eval.Fail("a test's name must be a str");
    const std::string& name = args[test_idx].str();
    test = FindTest(name);
    if (test == nullptr) return eval.Fail(StatusCode::kUnsupported, fmt::format("unknown test '{}'", name));
    rest.positional.assign(args.begin() + static_cast<ptrdiff_t>(test_idx) + 1, args.end());
    rest.named = call.args.named;
  }
  std::vector<Value> out;
  for (Value& item : items) {
    const Value tested = has_attribute ? eval.GetPath(item, args[0]) : item;
    if (eval.failed()) return Value();
    const bool holds = IsTrue(test != nullptr ? eval.CallBuiltin(*test, tested, rest) : tested);
    if (holds == wanted) out.push_back(std::move(item));
  }
  return eval.MakeList(std::move(out), ListKind::kGenerator);
}
Value Select(Evaluator& eval, const Call& call) {
  return Choose(eval, call, false, true);
}
Value Reject(Evaluator& eval, const Call& call) {
  return Choose(eval, call, false, false);
}
Value SelectAttr(Evaluator& eval, const Call& call) {
  return Choose(eval, call, true, true);
}
Value RejectAttr(Evaluator& eval, const Call& call) {
  return Choose(eval, call, true, false);
}

}  // namespace

const std::vector<Builtin>& SequenceFilters() {
  static const std::vector<Builtin> table = {
      {"length", 0, {}, Length},
      {"count", 0, {}, Length},
      {"default", 0, {"default_value", "boolean"}, Default},
      {"d", 0, {"default_value", "boolean"}, Default},
      {"join", 0, {"d", "attribute"}, Join},
      {"first", 0, {}, First},
      {"last", 0, {}, Last},
      {"list", 0, {}, List},
      {"reverse", 0, {}, Reverse},
      {"items", 0, {}, Items},
      {"sort", 0, {"reverse", "case_sensitive", "attribute"}, Sort},
      {"dictsort", 0, {"case_sensitive", "by", "reverse"}, DictSort},
      {"unique", 0, {"case_sensitive", "attribute"}, Unique},
      {"min", 0, {"case_sensitive", "attribute"}, Min},
      {"max", 0, {"case_sensitive", "attribute"}, Max},
      {"map", 0, {}, Map, true},
      {"select", 0, {}, Select, true},
      {"reject", 0, {}, Reject, true},
      {"selectattr", 0, {}, SelectAttr, true},
      {"rejectattr", 0, {}, RejectAttr, true},
  };
  return table;
}

const Builtin* FindIn(const std::vector<Builtin>& table, std::string_view name) {
  for (const Builtin& builtin : table) {
    if (name == builtin.name) return &builtin;
  }
  return nullptr;
}

const Builtin* FindFilter(std::string_view name) {
  const Builtin* const found = FindIn(StringFilters(), name);
  return found != nullptr ? found : FindIn(SequenceFilters(), name);
}

}  // namespace lockstep::tokenizer::jinja
