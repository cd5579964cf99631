#include <algorithm>

#include <fmt/format.h>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/evaluator.h"

namespace lockstep::tokenizer::jinja {
namespace {

Value RaiseException(Evaluator& eval, const Call& call) {
  const Text text = eval.Str(*call.Get(0));
  return eval.Raise(text.bytes());
}

// strftime's flags and widths can ask for any amount of output, so only plain letters pass.
Value StrftimeNow(Evaluator& eval, const Call& call) {
  const Value& format = *call.Get(0);
  if (!format.Is(Kind::kString)) return eval.Fail("strftime_now needs a str");
  std::tm when = *eval.clock();
  when.tm_zone = "UTC";
  Text out;
  const std::string& s = format.str();
  for (size_t i = 0; i < s.size() && !eval.failed(); ++i) {
    if (s[i] != '%') {
      out.Append(std::string_view(s).substr(i, 1), false);
      continue;
    }
    std::string piece = "%";
    if (i + 1 < s.size() && s[i + 1] == '-') piece += s[++i];
    if (++i >= s.size() || std::string_view("aAbBcdHIjmMpSUwWxXyYZzeDFT%").find(s[i]) == std::string_view::npos) {
      return eval.Fail(fmt::format("strftime_now does not know the format '{}'", s));
    }
    piece += s[i];
    char buffer[128];
    out.Append(std::string_view(buffer, std::strftime(buffer, sizeof(buffer), piece.c_str(), &when)), false);
  }
  // A format may hold text of the request.
  return eval.MakeStr(Text(out.bytes(), format.text().HasInput()));
}

Value Range(Evaluator& eval, const Call& call) {
  const std::vector<Value>& args = call.args.positional;
  if (args.empty() || args.size() > 3 || !call.args.named.empty()) return eval.Fail("range takes 1 to 3 integers");
  for (const Value& arg : args) {
    if (arg.Is(Kind::kUndefined)) return eval.Fail(arg.reason());
    if (!arg.IsIntegral()) return eval.Fail(fmt::format("range takes integers, not {}", TypeName(arg)));
    // Inside these, the sums below cannot overflow.
    if (arg.integer() > (int64_t{1} << 60) || arg.integer() < -(int64_t{1} << 60))
      return eval.Fail("range is too large");
  }
  const int64_t start = args.size() > 1 ? args[0].integer() : 0;
  const int64_t stop = args.size() > 1 ? args[1].integer() : args[0].integer();
  const int64_t step = args.size() > 2 ? args[2].integer() : 1;
  if (step == 0) return eval.Fail("range() arg 3 must not be zero");
  const int64_t span = step > 0 ? stop - start : start - stop;
  const int64_t stride = step > 0 ? step : -step;
  const int64_t num_elems = span > 0 ? (span - 1) / stride + 1 : 0;
  if (num_elems > eval.limits().max_range_elems) {
    return eval.Fail(
        fmt::format("range is too large: {} elements, the limit is {}", num_elems, eval.limits().max_range_elems));
  }
  if (!eval.Charge(static_cast<uint64_t>(num_elems)) ||
      !eval.ChargeBytes(static_cast<uint64_t>(num_elems) * sizeof(Value))) {
    return Value();
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < num_elems; ++i) items.push_back(Value::Int(start + i * step));
  return Value::Range(start, stop, step, std::move(items));
}

// dict(mapping or pairs, key=value...), into `dict`.
bool FillDict(Evaluator& eval, const Call& call, DictObject* dict) {
  const std::vector<Value>& args = call.args.positional;
  if (args.size() > 1) {
    eval.Fail("dict and namespace take at most one positional argument");
    return false;
  }
  const auto set = [&](const Value& key, const Value& value) {
    if (!eval.Charge(key.weight()) || !eval.ChargeBytes(key.weight() * 64 + 4 * sizeof(Value))) return false;
    if (dict->Set(key, value)) return true;
    eval.Fail(fmt::format("unhashable type: '{}'", TypeName(key)));
    return false;
  };
  if (args.size() == 1 && args[0].Is(Kind::kDict)) {
    for (const auto& [key, value] : args[0].dict().entries) {
      if (!set(key, value)) return false;
    }
  } else if (args.size() == 1) {
    std::vector<Value> pairs;
    if (!eval.Iterate(args[0], &pairs)) return false;
    for (const Value& pair : pairs) {
      std::vector<Value> parts;
      if (!eval.Iterate(pair, &parts)) return false;
      if (parts.size() != 2) {
        eval.Fail("dict needs pairs of a key and a value");
        return false;
      }
      if (!set(parts[0], parts[1])) return false;
    }
  }
  for (const auto& [name, value] : call.args.named) {
    if (!set(Value::Str(name), value)) return false;
  }
  return true;
}

Value Dict(Evaluator& eval, const Call& call) {
  auto dict = std::make_shared<DictObject>();
  return FillDict(eval, call, dict.get()) ? eval.MakeDict(std::move(dict)) : Value();
}

Value NamespaceGlobal(Evaluator& eval, const Call& call) {
  Value ns = eval.MakeNamespace();
  if (eval.failed() || !FillDict(eval, call, &ns.ns().attributes)) return Value();
  return ns;
}

}  // namespace

const Builtin* FindGlobal(std::string_view name) {
  static const std::vector<Builtin> table = {
      {"raise_exception", 1, {"message"}, RaiseException},
      {"strftime_now", 1, {"format"}, StrftimeNow},
      {"range", 0, {}, Range, true},
      {"dict", 0, {}, Dict, true},
      {"namespace", 0, {}, NamespaceGlobal, true},
  };
  return FindIn(table, name);
}

}  // namespace lockstep::tokenizer::jinja
