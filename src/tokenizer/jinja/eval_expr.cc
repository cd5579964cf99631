#include <fmt/format.h>

#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/print.h"

namespace lockstep::tokenizer::jinja {
namespace {

// How Jinja's messages name an object: the dict in "'dict object' has no attribute 'x'".
std::string NoAttribute(const Value& object, const std::string& name) {
  if (object.Is(Kind::kNone)) return fmt::format("'None' has no attribute '{}'", name);
  return fmt::format("'{} object' has no attribute '{}'", TypeName(object), name);
}

}  // namespace

Value Evaluator::Eval(const Expr& e) {
  DepthGuard guard(this);
  line_ = e.line;
  if (!Charge(1)) return Value();
  return EvalNode(e);
}

Value Evaluator::EvalNode(const Expr& e) {
  switch (e.kind) {
    case ExprKind::kLiteral:
      return e.literal;
    case ExprKind::kName:
      return EvalName(e);
    case ExprKind::kList:
    case ExprKind::kTuple: {
      std::vector<Value> items;
      for (const ExprPtr& child : e.children) items.push_back(Eval(*child));
      return MakeList(std::move(items), e.kind == ExprKind::kList ? ListKind::kList : ListKind::kTuple);
    }
    case ExprKind::kDict:
      return EvalDict(e);
    case ExprKind::kAttribute: {
      const Value object = Eval(*e.children[0]);
      line_ = e.line;
      return failed() ? Value() : GetAttribute(object, e.name);
    }
    case ExprKind::kSubscript: {
      const Value object = Eval(*e.children[0]);
      const Value key = Eval(*e.children[1]);
      line_ = e.line;
      return failed() ? Value() : GetItem(object, key);
    }
    case ExprKind::kSlice:
      return EvalSlice(e);
    case ExprKind::kCall:
      return EvalCall(e);
    case ExprKind::kFilter:
    case ExprKind::kTest: {
      const Value self = e.children[0] != nullptr ? Eval(*e.children[0]) : *filter_base_;
      Args args;
      if (failed() || !EvalArgs(e, &args)) return Value();
      line_ = e.line;
      return CallBuiltin(*e.builtin, self, args);
    }
    case ExprKind::kUnary:
      return EvalUnary(e);
    case ExprKind::kBinary: {
      const Value a = Eval(*e.children[0]);
      const Value b = Eval(*e.children[1]);
      line_ = e.line;
      return failed() ? Value() : Binary(e.name, a, b);
    }
    case ExprKind::kConcat:
      return EvalConcat(e);
    case ExprKind::kCompare:
      return EvalCompare(e);
    case ExprKind::kAnd: {
      Value a = Eval(*e.children[0]);
      return failed() || !IsTrue(a) ? a : Eval(*e.children[1]);
    }
    case ExprKind::kOr: {
      Value a = Eval(*e.children[0]);
      return failed() || IsTrue(a) ? a : Eval(*e.children[1]);
    }
    case ExprKind::kConditional: {
      const bool is_taken = IsTrue(Eval(*e.children[1]));
      if (failed()) return Value();
      if (is_taken) return Eval(*e.children[0]);
      if (e.children[2] != nullptr) return Eval(*e.children[2]);
      return Value::Undefined("the inline if-expression evaluated to false and no else section was defined");
    }
  }
  return Value();
}

Value Evaluator::ApplyFilters(const Expr& e, const Value& base) {
  const Value* const outer = std::exchange(filter_base_, &base);
  Value result = Eval(e);
  filter_base_ = outer;
  return result;
}

Value Evaluator::EvalName(const Expr& e) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    const auto found = scope->vars.find(e.name);
    if (found != scope->vars.end()) return found->second;
  }
  const Builtin* const global = FindGlobal(e.name);
  if (global == nullptr || (e.name == "strftime_now" && !clock_)) {
    return Value::Undefined(fmt::format("'{}' is undefined", e.name));
  }
  auto callable = std::make_shared<CallableObject>();
  callable->name = e.name;
  return Value::Callable(std::move(callable));
}

Value Evaluator::EvalDict(const Expr& e) {
  auto dict = std::make_shared<DictObject>();
  for (size_t i = 0; i + 1 < e.children.size(); i += 2) {
    const Value key = Eval(*e.children[i]);
    Value value = Eval(*e.children[i + 1]);
    if (failed()) return Value();
    if (!Charge(key.weight()) || !ChargeBytes(key.weight() * 64)) return Value();
    if (!dict->Set(key, std::move(value))) return Fail(fmt::format("unhashable type: '{}'", TypeName(key)));
  }
  return MakeDict(std::move(dict));
}

Value Evaluator::EvalConcat(const Expr& e) {
  Text text;
  for (const ExprPtr& child : e.children) {
    const Value v = Eval(*child);
    if (failed()) return Value();
    text.Append(Str(v));
    if (text.num_bytes() > limits_.max_output_bytes) break;  // MakeStr reports it
  }
  return MakeStr(std::move(text));
}

bool Evaluator::EvalArgs(const Expr& e, Args* args) {
  for (const Argument& arg : e.args) {
    Value value = Eval(*arg.value);
    if (failed()) return false;
    switch (arg.form) {
      case Argument::Form::kPositional:
        args->positional.push_back(std::move(value));
        break;
      case Argument::Form::kNamed:
        args->named.emplace_back(arg.name, std::move(value));
        break;
      case Argument::Form::kSpreadList: {
        std::vector<Value> items;
        if (!Iterate(value, &items)) return false;
        args->positional.insert(args->positional.end(), items.begin(), items.end());
        break;
      }
      case Argument::Form::kSpreadDict:
        if (!value.Is(Kind::kDict)) {
          Fail(fmt::format("argument after ** must be a mapping, not {}", TypeName(value)));
          return false;
        }
        for (const auto& [key, item] : value.dict().entries) {
          if (!key.Is(Kind::kString)) {
            Fail("keywords must be strings");
            return false;
          }
          if (!Charge(1)) return false;
          args->named.emplace_back(key.str(), item);
        }
        break;
    }
  }
  return !failed();
}

Value Evaluator::EvalCall(const Expr& e) {
  const Value callee = Eval(*e.children[0]);
  Args args;
  if (failed() || !EvalArgs(e, &args)) return Value();
  line_ = e.line;
  return Call(callee, args);
}

Value Evaluator::Call(const Value& callee, const Args& args) {
  if (callee.Is(Kind::kUndefined)) return Fail(callee.reason());
  if (!callee.Is(Kind::kCallable)) return Fail(fmt::format("'{}' object is not callable", TypeName(callee)));
  const CallableObject& callable = callee.callable();
  switch (callable.kind) {
    case CallKind::kGlobal:
      return CallBuiltin(*FindGlobal(callable.name), Value(), args);
    case CallKind::kMethod:
      return CallBuiltin(*FindMethod(callable.self, callable.name), callable.self, args);
    case CallKind::kMacro:
      return CallMacro(callable, args);
    case CallKind::kCycle:
      break;
  }
  LoopObject& loop = callable.self.loop();
  if (callable.name == "changed") {
    const Value now = MakeList(args.positional, ListKind::kTuple);
    if (failed() || (loop.has_last_changed && EqualValues(loop.last_changed, now))) return Value::Bool(false);
    // Held by the loop, so a loop in it would be a cycle.
    if (now.depth() > 2) return Fail(StatusCode::kUnsupported, "loop.changed of a nested value is not supported");
    for (const Value& v : now.list().items) {
      if (v.Is(Kind::kLoop)) return Fail("loop.changed of a loop is not supported");
    }
    loop.last_changed = now;
    loop.has_last_changed = true;
    return Value::Bool(true);
  }
  if (args.positional.empty()) return Fail("loop.cycle needs at least one value");
  return args.positional[loop.index0 % args.positional.size()];
}

// Binds the arguments to the builtin's parameters.
Value Evaluator::CallBuiltin(const Builtin& builtin, const Value& self, const Args& args) {
  jinja::Call call{self, args, std::vector<const Value*>(builtin.params.size(), nullptr)};
  // Filters, tests and methods read all of a string.
  if (!Charge(self.Is(Kind::kString) ? self.weight() : 1)) return Value();
  if (!builtin.is_variadic) {
    if (args.positional.size() > builtin.params.size()) {
      return Fail(fmt::format("'{}' takes at most {} argument(s), {} given", builtin.name, builtin.params.size(),
                              args.positional.size()));
    }
    for (size_t i = 0; i < args.positional.size(); ++i) call.bound[i] = &args.positional[i];
    for (const auto& [name, value] : args.named) {
      size_t i = 0;
      while (i < builtin.params.size() && name != builtin.params[i]) ++i;
      if (i == builtin.params.size()) return Fail(fmt::format("'{}' takes no argument '{}'", builtin.name, name));
      if (call.bound[i] != nullptr) return Fail(fmt::format("'{}' got two values for '{}'", builtin.name, name));
      call.bound[i] = &value;
    }
    for (size_t i = 0; i < builtin.num_required; ++i) {
      if (call.bound[i] == nullptr) {
        return Fail(fmt::format("'{}' needs the argument '{}'", builtin.name, builtin.params[i]));
      }
    }
  }
  DepthGuard guard(this);
  return failed() ? Value() : builtin.fn(*this, call);
}

Value Evaluator::Method(const Value& self, const std::string& name) {
  if (FindMethod(self, name) == nullptr) return Value();
  auto callable = std::make_shared<CallableObject>();
  callable->kind = CallKind::kMethod;
  callable->name = name;
  callable->self = self;
  return Value::Callable(std::move(callable));
}

Value Evaluator::LoopAttribute(LoopObject& loop, const std::string& name) {
  const int64_t index0 = static_cast<int64_t>(loop.index0);
  const int64_t num_items = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::Int(index0 + 1);
  if (name == "index0") return Value::Int(index0);
  if (name == "revindex") return Value::Int(num_items - index0);
  if (name == "revindex0") return Value::Int(num_items - index0 - 1);
  if (name == "first") return Value::Bool(index0 == 0);
  if (name == "last") return Value::Bool(index0 + 1 == num_items);
  if (name == "length") return Value::Int(num_items);
  // Only recursive loops, which we do not have, get deeper.
  if (name == "depth") return Value::Int(1);
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem") {
    return index0 > 0 ? loop.items[loop.index0 - 1] : Value::Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index0 + 1 < num_items ? loop.items[loop.index0 + 1] : Value::Undefined("there is no next item");
  }
  return Value::Undefined(fmt::format("'LoopContext object' has no attribute '{}'", name));
}

Value Evaluator::GetAttribute(const Value& object, const std::string& name) {
  switch (object.kind()) {
    case Kind::kUndefined:
      return Fail(object.reason());
    case Kind::kLoop:
      if (name == "cycle" || name == "changed") {
        auto callable = std::make_shared<CallableObject>();
        callable->kind = CallKind::kCycle;
        callable->name = name;
        callable->self = object;
        return Value::Callable(std::move(callable));
      }
      return LoopAttribute(object.loop(), name);
    case Kind::kNamespace: {
      const Value* const found = object.ns().attributes.Find(name);
      return found != nullptr ? *found : Value::Undefined(NoAttribute(object, name));
    }
    case Kind::kString:
    case Kind::kList:
    case Kind::kDict: {
      Value method = Method(object, name);
      if (!method.Is(Kind::kUndefined)) return method;
      if (object.Is(Kind::kDict)) {
        const Value* const found = object.dict().Find(name);
        if (found != nullptr) return *found;
      }
      break;
    }
    default:
      break;
  }
  return Value::Undefined(NoAttribute(object, name));
}

Value Evaluator::GetItem(const Value& object, const Value& key) {
  if (object.Is(Kind::kUndefined)) return Fail(object.reason());
  if (!Charge(key.weight())) return Value();
  if (object.Is(Kind::kDict)) {
    const Value* const found = object.dict().Find(key);
    if (found != nullptr) return *found;
  }
  if (key.IsIntegral()) {
    int64_t i = key.integer();
    if (object.Is(Kind::kString)) {
      const std::vector<size_t> starts = CharStarts(object.str());
      if (!Charge(object.weight())) return Value();
      const int64_t num_chars = static_cast<int64_t>(starts.size()) - 1;
      if (i < 0) i += num_chars;
      if (i >= 0 && i < num_chars) {
        const size_t at = static_cast<size_t>(i);
        return MakeStr(object.text().Slice(starts[at], starts[at + 1]));
      }
    } else if (object.Is(Kind::kList)) {
      const ListObject& list = object.list();
      const bool is_sequence =
          list.kind == ListKind::kList || list.kind == ListKind::kTuple || list.kind == ListKind::kRange;
      const int64_t num_items = static_cast<int64_t>(list.items.size());
      if (i < 0) i += num_items;
      if (is_sequence && i >= 0 && i < num_items) return list.items[static_cast<size_t>(i)];
    }
    return Value::Undefined(fmt::format("'{} object' has no element {}", TypeName(object), key.integer()));
  }
  if (key.Is(Kind::kString)) {
    if (object.Is(Kind::kDict)) {
      Value method = Method(object, key.str());
      return method.Is(Kind::kUndefined) ? Value::Undefined(NoAttribute(object, key.str())) : method;
    }
    return GetAttribute(object, key.str());
  }
  return Value::Undefined(fmt::format("'{} object' has no such element", TypeName(object)));
}

Value Evaluator::GetPath(const Value& object, const Value& path) {
  if (path.IsIntegral()) return GetItem(object, path);
  if (!path.Is(Kind::kString))
    return Fail(fmt::format("an attribute's name is a str or an int, not {}", TypeName(path)));
  Value at = object;
  const std::string& names = path.str();
  for (size_t begin = 0; begin <= names.size() && !failed();) {
    size_t end = names.find('.', begin);
    if (end == std::string::npos) end = names.size();
    const std::string name = names.substr(begin, end - begin);
    const bool is_index =
        !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    at = GetItem(at, is_index ? Value::Int(std::stoll(name)) : Value::Str(name));
    begin = end + 1;
  }
  return at;
}

}  // namespace lockstep::tokenizer::jinja
