#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/strings.h"

namespace lockstep::tokenizer::jinja {

bool Evaluator::Iterate(const Value& v, std::vector<Value>* items) {
  if (failed()) return false;
  switch (v.kind()) {
    case Kind::kUndefined:
      return true;  // Jinja: an undefined value is an empty sequence
    case Kind::kString: {
      const std::vector<size_t> starts = CharStarts(v.str());
      if (!Charge(starts.size()) || !ChargeBytes(starts.size() * (sizeof(Value) + sizeof(TextObject)))) return false;
      for (size_t i = 0; i + 1 < starts.size(); ++i) {
        items->push_back(Value::Str(v.text().Slice(starts[i], starts[i + 1])));
      }
      return true;
    }
    case Kind::kList: {
      ListObject& list = v.mutable_list();
      const size_t begin = list.kind == ListKind::kGenerator ? list.next_idx : 0;
      if (!Charge(list.items.size() - begin) || !ChargeBytes(list.items.size() * sizeof(Value))) return false;
      items->assign(list.items.begin() + static_cast<ptrdiff_t>(begin), list.items.end());
      if (list.kind == ListKind::kGenerator) list.next_idx = list.items.size();
      return true;
    }
    case Kind::kDict:
      if (!Charge(v.dict().entries.size()) || !ChargeBytes(v.dict().entries.size() * sizeof(Value))) return false;
      for (const auto& entry : v.dict().entries) items->push_back(entry.first);
      return true;
    default:
      Fail(fmt::format("'{}' object is not iterable", TypeName(v)));
      return false;
  }
}

bool Evaluator::EqualValues(const Value& a, const Value& b) {
  if (!Charge(std::min(a.weight(), b.weight()))) return false;
  return Equal(a, b);
}

bool Evaluator::Contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.Is(Kind::kString)) {
        Fail(fmt::format("'in <string>' requires string as left operand, not {}", TypeName(item)));
        return false;
      }
      return Charge(container.weight()) && FindBytes(container.str(), item.str(), 0) != std::string::npos;
    case Kind::kDict:
      if (!Charge(item.weight())) return false;
      if (!HashKey(item)) {
        Fail(fmt::format("unhashable type: '{}'", TypeName(item)));
        return false;
      }
      return container.dict().Find(item) != nullptr;
    case Kind::kList: {
      std::vector<Value> items;
      if (!Iterate(container, &items)) return false;
      return std::any_of(items.begin(), items.end(), [&](const Value& v) { return EqualValues(v, item); });
    }
    default:
      Fail(fmt::format("argument of type '{}' is not iterable", TypeName(container)));
      return false;
  }
}

bool Evaluator::Less(const Value& a, const Value& b, const char* op) {
  const std::string_view name(op);
  const auto decide = [&](const auto& x, const auto& y) {
    if (name == "<") return x < y;
    if (name == "<=") return x <= y;
    if (name == ">") return x > y;
    return x >= y;
  };
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsIntegral() && b.IsIntegral()) return decide(a.integer(), b.integer());
    return decide(a.number(), b.number());
  }
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) {
    if (!Charge(1 + std::min(a.weight(), b.weight()))) return false;
    return decide(a.str(), b.str());
  }
  const bool are_lists = (a.IsList(ListKind::kList) && b.IsList(ListKind::kList)) ||
                         (a.IsList(ListKind::kTuple) && b.IsList(ListKind::kTuple));
  if (are_lists) {
    const std::vector<Value>& x = a.list().items;
    const std::vector<Value>& y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()) && !failed(); ++i) {
      if (!EqualValues(x[i], y[i])) return Less(x[i], y[i], op);
    }
    return decide(x.size(), y.size());
  }
  if (a.Is(Kind::kUndefined) || b.Is(Kind::kUndefined)) {
    Fail((a.Is(Kind::kUndefined) ? a : b).reason());
    return false;
  }
  Fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, TypeName(a), TypeName(b)));
  return false;
}

Value Evaluator::EvalCompare(const Expr& e) {
  Value left = Eval(*e.children[0]);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    Value right = Eval(*e.children[i + 1]);
    if (failed()) return Value();
    line_ = e.line;
    const std::string& op = e.ops[i];
    bool holds = false;
    if (op == "==")
      holds = EqualValues(left, right);
    else if (op == "!=")
      holds = !EqualValues(left, right);
    else if (op == "in")
      holds = Contains(right, left);
    else if (op == "not in")
      holds = !Contains(right, left);
    else
      holds = Less(left, right, op.c_str());
    if (failed()) return Value();
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Evaluator::EvalUnary(const Expr& e) {
  const Value v = Eval(*e.children[0]);
  if (failed()) return Value();
  if (e.name == "not") return Value::Bool(!IsTrue(v));
  if (v.Is(Kind::kUndefined)) return Fail(v.reason());
  if (!v.IsNumber()) return Fail(fmt::format("bad operand type for unary {}: '{}'", e.name, TypeName(v)));
  const bool is_input = v.scalar_is_input();
  if (v.Is(Kind::kFloat)) return Value::Float(e.name == "-" ? -v.number() : v.number(), is_input);
  if (e.name == "+") return Value::Int(v.integer(), is_input);
  return IntegerOp("-", 0, v.integer(), is_input);
}

// Python's slice rules: negative indices count from the end, all are clamped.
Value Evaluator::EvalSlice(const Expr& e) {
  const Value object = Eval(*e.children[0]);
  std::optional<int64_t> part[3];
  for (size_t i = 0; i < 3; ++i) {
    if (e.children[i + 1] == nullptr) continue;
    const Value v = Eval(*e.children[i + 1]);
    if (failed()) return Value();
    if (v.Is(Kind::kNone)) continue;
    if (!v.IsIntegral()) return Fail("slice indices must be integers or None");
    // Clamped well inside 64 bits, so that the sums below cannot overflow.
    part[i] = std::clamp<int64_t>(v.integer(), -(int64_t{1} << 40), int64_t{1} << 40);
  }
  if (failed()) return Value();
  if (object.Is(Kind::kUndefined)) return Fail(object.reason());
  const bool is_string = object.Is(Kind::kString);
  const bool is_list =
      object.IsList(ListKind::kList) || object.IsList(ListKind::kTuple) || object.IsList(ListKind::kRange);
  if (!is_string && !is_list) return Fail(fmt::format("'{}' object is not subscriptable", TypeName(object)));
  if (!Charge(object.weight())) return Value();
  const std::vector<size_t> starts = is_string ? CharStarts(object.str()) : std::vector<size_t>();
  const int64_t n = static_cast<int64_t>(is_string ? starts.size() - 1 : object.list().items.size());
  const int64_t step = part[2].value_or(1);
  if (step == 0) return Fail("slice step cannot be zero");
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? n : n - 1;
  const auto place = [&](int64_t i) { return std::clamp(i < 0 ? i + n : i, low, high); };
  const int64_t start = part[0] ? place(*part[0]) : (step > 0 ? low : high);
  const int64_t stop = part[1] ? place(*part[1]) : (step > 0 ? high : low);
  if (is_string && step == 1) {
    if (start >= stop) return MakeStr(Text());
    return MakeStr(object.text().Slice(starts[static_cast<size_t>(start)], starts[static_cast<size_t>(stop)]));
  }
  Text text;
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (!Charge(1)) return Value();
    const size_t at = static_cast<size_t>(i);
    if (is_string)
      text.Append(object.text().Slice(starts[at], starts[at + 1]));
    else
      items.push_back(object.list().items[at]);
  }
  if (is_string) return MakeStr(std::move(text));
  return MakeList(std::move(items), object.IsList(ListKind::kTuple) ? ListKind::kTuple : ListKind::kList);
}

Value Evaluator::OperandError(const std::string& op, const Value& a, const Value& b) {
  if (a.Is(Kind::kUndefined)) return Fail(a.reason());
  if (b.Is(Kind::kUndefined)) return Fail(b.reason());
  if (op == "+" && (a.Is(Kind::kString) || a.Is(Kind::kList))) {
    return Fail(fmt::format("can only concatenate {0} (not \"{1}\") to {0}", TypeName(a), TypeName(b)));
  }
  return Fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, TypeName(a), TypeName(b)));
}

Value Evaluator::Binary(const std::string& op, const Value& a, const Value& b) {
  if (op == "+" && !a.IsNumber()) return Add(a, b);
  if (op == "*" && !(a.IsNumber() && b.IsNumber())) return Multiply(a, b);
  if (op == "%" && a.Is(Kind::kString)) {
    return Fail(StatusCode::kUnsupported, "string formatting with '%' is not supported");
  }
  if (!a.IsNumber() || !b.IsNumber()) return OperandError(op, a, b);
  const bool is_input = a.scalar_is_input() || b.scalar_is_input();
  const bool needs_float = op == "/" || (op == "**" && b.IsIntegral() && b.integer() < 0);
  if (a.IsIntegral() && b.IsIntegral() && !needs_float) return IntegerOp(op, a.integer(), b.integer(), is_input);
  return FloatOp(op, a.number(), b.number(), is_input);
}

Value Evaluator::Add(const Value& a, const Value& b) {
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) {
    Text text = a.text();
    text.Append(b.text());
    return MakeStr(std::move(text));
  }
  for (const ListKind kind : {ListKind::kList, ListKind::kTuple}) {
    if (!a.IsList(kind) || !b.IsList(kind)) continue;
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return MakeList(std::move(items), kind);
  }
  return OperandError("+", a, b);
}

Value Evaluator::Multiply(const Value& a, const Value& b) {
  if (b.IsIntegral()) return Repeat(a, b.integer());
  if (a.IsIntegral()) return Repeat(b, a.integer());
  return OperandError("*", a, b);
}

Value Evaluator::Repeat(const Value& sequence, int64_t count) {
  const uint64_t times = count > 0 ? static_cast<uint64_t>(count) : 0;
  if (sequence.Is(Kind::kString)) {
    const size_t num_bytes = sequence.text().num_bytes();
    if (num_bytes > 0 && times > limits_.max_output_bytes / num_bytes) {
      return Fail(fmt::format("a string repeated {} times is longer than {} bytes", times, limits_.max_output_bytes));
    }
    const size_t num_runs = sequence.text().num_runs();  // one run stays one
    if (num_runs > 1 && num_runs * times > limits_.max_runs) {
      return Fail("a repeated string mixes input and own text too often");
    }
    if (!Charge(1 + num_bytes * times / 1024)) return Value();
    Text text;
    Text power = sequence.text();  // of 1, 2, 4, ... copies
    for (uint64_t left = num_bytes > 0 ? times : 0; left > 0; left /= 2) {
      if (left % 2 != 0) text.Append(power);
      if (left > 1) power.Append(Text(power));
    }
    return MakeStr(std::move(text));
  }
  if (sequence.IsList(ListKind::kList) || sequence.IsList(ListKind::kTuple)) {
    const std::vector<Value>& once = sequence.list().items;
    if (!once.empty() && times > static_cast<uint64_t>(limits_.max_range_elems) / once.size()) {
      return Fail(fmt::format("a list repeated {} times has more than {} elements", times, limits_.max_range_elems));
    }
    std::vector<Value> items;
    for (uint64_t i = 0; i < times && !once.empty(); ++i) items.insert(items.end(), once.begin(), once.end());
    return MakeList(std::move(items), sequence.list().kind);
  }
  return OperandError("*", sequence, Value::Int(count));
}

Value Evaluator::IntegerOp(const std::string& op, int64_t a, int64_t b, bool is_input) {
  int64_t out = 0;
  bool overflows = false;
  if (op == "+") {
    overflows = __builtin_add_overflow(a, b, &out);
  } else if (op == "-") {
    overflows = __builtin_sub_overflow(a, b, &out);
  } else if (op == "*") {
    overflows = __builtin_mul_overflow(a, b, &out);
  } else if (op == "**") {
    out = 1;
    // Square and multiply; a base of magnitude above 1 overflows within 63 steps, others never do.
    for (int64_t base = a, left = b; left > 0 && !overflows;) {
      if (left % 2 != 0) overflows = __builtin_mul_overflow(out, base, &out);
      left /= 2;
      if (left > 0 && !overflows) overflows = __builtin_mul_overflow(base, base, &base);
    }
  } else {
    if (b == 0) return Fail(op == "%" ? "integer modulo by zero" : "integer division or modulo by zero");
    if (b == -1) {  // the one quotient that can overflow
      overflows = op == "//" && __builtin_sub_overflow(int64_t{0}, a, &out);
    } else {
      const int64_t remainder = a % b;
      const bool rounds_down = remainder != 0 && (remainder < 0) != (b < 0);
      out = op == "//" ? a / b - (rounds_down ? 1 : 0) : remainder + (rounds_down ? b : 0);
    }
  }
  if (overflows) return Fail(fmt::format("the result of {} {} {} does not fit 64 bits", a, op, b));
  return Value::Int(out, is_input);
}

Value Evaluator::FloatOp(const std::string& op, double a, double b, bool is_input) {
  double out = 0;
  if (op == "+")
    out = a + b;
  else if (op == "-")
    out = a - b;
  else if (op == "*")
    out = a * b;
  else if (op == "**") {
    if (a == 0 && b < 0) return Fail("0.0 cannot be raised to a negative power");
    out = std::pow(a, b);
    if (std::isnan(out) && !std::isnan(a) && !std::isnan(b)) return Fail("the power is a complex number");
    if (std::isinf(out) && !std::isinf(a) && !std::isinf(b)) return Fail("numerical result out of range");
  } else {
    if (b == 0)
      return Fail(op == "/" ? "division by zero" : op == "//" ? "float floor division by zero" : "float modulo");
    if (op == "/") {
      out = a / b;
    } else {
      double remainder = std::fmod(a, b);
      if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
      out = op == "%" ? remainder : std::floor((a - remainder) / b + 0.5);
    }
  }
  return Value::Float(out, is_input);
}

}  // namespace lockstep::tokenizer::jinja
