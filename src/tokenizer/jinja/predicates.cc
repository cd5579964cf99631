// Jinja's "tests": what may follow `is`. (Not our own tests; those are in *_test.cc.)
#include <fmt/format.h>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/evaluator.h"

namespace lockstep::tokenizer::jinja {
namespace {

template <Kind kKind>
Value IsKind(Evaluator&, const Call& call) {
  return Value::Bool(call.self.Is(kKind));
}

Value Defined(Evaluator&, const Call& call) {
  return Value::Bool(!call.self.Is(Kind::kUndefined));
}
Value Number(Evaluator&, const Call& call) {
  return Value::Bool(call.self.IsNumber());
}
Value True(Evaluator&, const Call& call) {
  return Value::Bool(call.self.Is(Kind::kBool) && call.self.boolean());
}
Value False(Evaluator&, const Call& call) {
  return Value::Bool(call.self.Is(Kind::kBool) && !call.self.boolean());
}

Value Iterable(Evaluator&, const Call& call) {
  const Kind kind = call.self.kind();
  // Undefined too: Jinja's iterates as an empty sequence.
  return Value::Bool(kind == Kind::kString || kind == Kind::kList || kind == Kind::kDict || kind == Kind::kUndefined ||
                     kind == Kind::kLoop);
}

Value Sequence(Evaluator&, const Call& call) {
  const Value& v = call.self;
  if (v.Is(Kind::kList)) {
    const ListKind kind = v.list().kind;
    return Value::Bool(kind == ListKind::kList || kind == ListKind::kTuple || kind == ListKind::kRange);
  }
  // Jinja asks for len() and indexing, which dicts and undefined values have.
  return Value::Bool(v.Is(Kind::kString) || v.Is(Kind::kDict) || v.Is(Kind::kUndefined));
}

Value CallableTest(Evaluator&, const Call& call) {
  return Value::Bool(call.self.Is(Kind::kCallable) || call.self.Is(Kind::kUndefined));
}

Value Eq(Evaluator& eval, const Call& call) {
  return Value::Bool(eval.EqualValues(call.self, *call.Get(0)));
}
Value Ne(Evaluator& eval, const Call& call) {
  return Value::Bool(!eval.EqualValues(call.self, *call.Get(0)));
}
Value Lt(Evaluator& eval, const Call& call) {
  return Value::Bool(eval.Less(call.self, *call.Get(0), "<"));
}
Value Le(Evaluator& eval, const Call& call) {
  return Value::Bool(eval.Less(call.self, *call.Get(0), "<="));
}
Value Gt(Evaluator& eval, const Call& call) {
  return Value::Bool(eval.Less(call.self, *call.Get(0), ">"));
}
Value Ge(Evaluator& eval, const Call& call) {
  return Value::Bool(eval.Less(call.self, *call.Get(0), ">="));
}
Value In(Evaluator& eval, const Call& call) {
  return Value::Bool(eval.Contains(*call.Get(0), call.self));
}

Value DivisibleBy(Evaluator& eval, const Call& call) {
  const Value& v = call.self;
  const Value& by = *call.Get(0);
  if (v.Is(Kind::kUndefined)) return eval.Fail(v.reason());
  if (!v.IsIntegral() || !by.IsIntegral()) return eval.Fail("divisibleby, odd and even need integers");
  if (by.integer() == 0) return eval.Fail("integer modulo by zero");
  return Value::Bool(by.integer() == -1 || v.integer() % by.integer() == 0);
}

Value Even(Evaluator& eval, const Call& call) {
  const Value two = Value::Int(2);
  return DivisibleBy(eval, jinja::Call{call.self, call.args, {&two}});
}
Value Odd(Evaluator& eval, const Call& call) {
  const Value even = Even(eval, call);
  return eval.failed() ? even : Value::Bool(!even.boolean());
}

// Python's islower and isupper: some letter has a case, and none the other one.
Value HasCase(Evaluator& eval, const Call& call, bool is_lower) {
  const Text text = eval.Str(call.self);
  bool found = false;
  for (size_t at = 0; at < text.num_bytes();) {
    const size_t end = NextChar(text.bytes(), at);
    const uint32_t c = DecodeChar(text.bytes(), at, end);
    if (LowerChar(c) != c || UpperChar(c) != c) {
      if ((is_lower ? LowerChar(c) : UpperChar(c)) != c) return Value::Bool(false);
      found = true;
    }
    at = end;
  }
  return Value::Bool(found);
}
Value Lower(Evaluator& eval, const Call& call) {
  return HasCase(eval, call, true);
}
Value Upper(Evaluator& eval, const Call& call) {
  return HasCase(eval, call, false);
}

const std::vector<Builtin>& Table() {
  static const std::vector<Builtin> table = {
      {"defined", 0, {}, Defined},
      {"undefined", 0, {}, IsKind<Kind::kUndefined>},
      {"none", 0, {}, IsKind<Kind::kNone>},
      {"string", 0, {}, IsKind<Kind::kString>},
      {"mapping", 0, {}, IsKind<Kind::kDict>},
      {"boolean", 0, {}, IsKind<Kind::kBool>},
      {"integer", 0, {}, IsKind<Kind::kInt>},
      {"float", 0, {}, IsKind<Kind::kFloat>},
      {"number", 0, {}, Number},
      {"iterable", 0, {}, Iterable},
      {"sequence", 0, {}, Sequence},
      {"callable", 0, {}, CallableTest},
      {"true", 0, {}, True},
      {"false", 0, {}, False},
      {"odd", 0, {}, Odd},
      {"even", 0, {}, Even},
      {"divisibleby", 1, {"num"}, DivisibleBy},
      {"lower", 0, {}, Lower},
      {"upper", 0, {}, Upper},
      {"in", 1, {"seq"}, In},
      {"eq", 1, {"other"}, Eq},
      {"==", 1, {"other"}, Eq},
      {"equalto", 1, {"other"}, Eq},
      {"ne", 1, {"other"}, Ne},
      {"!=", 1, {"other"}, Ne},
      {"lt", 1, {"other"}, Lt},
      {"<", 1, {"other"}, Lt},
      {"lessthan", 1, {"other"}, Lt},
      {"le", 1, {"other"}, Le},
      {"<=", 1, {"other"}, Le},
      {"gt", 1, {"other"}, Gt},
      {">", 1, {"other"}, Gt},
      {"greaterthan", 1, {"other"}, Gt},
      {"ge", 1, {"other"}, Ge},
      {">=", 1, {"other"}, Ge},
  };
  return table;
}

}  // namespace

const Builtin* FindTest(std::string_view name) {
  return FindIn(Table(), name);
}

}  // namespace lockstep::tokenizer::jinja
