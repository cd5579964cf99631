#include "tokenizer/jinja/evaluator.h"

#include <fmt/format.h>

#include "tokenizer/jinja/print.h"

namespace lockstep::tokenizer::jinja {

Evaluator::~Evaluator() {
  // The lists keep every member alive while the links between them are cut, so a long chain frees without recursion.
  for (const auto& ns : namespaces_) {
    ns->attributes.entries.clear();
    ns->attributes.index.clear();
  }
  for (const auto& scope : captured_scopes_) scope->vars.clear();
}

Evaluator::DepthGuard::DepthGuard(Evaluator* e) : eval(e) {
  if (++e->depth_ > e->limits_.max_depth) {
    e->Fail(fmt::format("recursion deeper than {} levels", e->limits_.max_depth));
  }
}

void Evaluator::SetGlobal(const std::string& name, Value value) {
  scope_->vars[name] = std::move(value);
}

Value Evaluator::Fail(StatusCode code, const std::string& what) {
  if (status_.ok()) status_ = Status(code, fmt::format("template line {}: {}", line_, what));
  return Value();
}
Value Evaluator::FailStatus(const Status& status) {
  return Fail(status.code(), status.message());
}
Value Evaluator::Raise(const std::string& own_text) {
  if (status_.ok()) status_ = InvalidArgument(own_text);
  return Value();
}

bool Evaluator::Charge(uint64_t num_steps) {
  if (failed()) return false;
  num_steps_ += num_steps;
  if (num_steps_ <= limits_.max_steps) return true;
  Fail(fmt::format("the template takes more than {} steps", limits_.max_steps));
  return false;
}

bool Evaluator::ChargeBytes(uint64_t num_bytes) {
  if (failed()) return false;
  num_work_bytes_ += num_bytes;
  if (num_work_bytes_ <= limits_.max_work_bytes) return true;
  Fail(fmt::format("the template builds more than {} bytes of values", limits_.max_work_bytes));
  return false;
}

Value Evaluator::MakeStr(Text text) {
  if (text.num_bytes() > limits_.max_output_bytes) {
    return Fail(fmt::format("a string is longer than {} bytes", limits_.max_output_bytes));
  }
  if (text.num_runs() > limits_.max_runs) return Fail("a string mixes input and own text too often");
  if (!ChargeBytes(text.num_bytes() + text.num_runs() * 16 + sizeof(TextObject))) return Value();
  return Value::Str(std::move(text));
}

Value Evaluator::MakeList(std::vector<Value> items, ListKind kind) {
  if (!Charge(items.size()) || !ChargeBytes(items.size() * sizeof(Value) + sizeof(ListObject))) return Value();
  Value list = Value::List(std::move(items), kind);
  if (list.depth() > limits_.max_value_depth) {
    return Fail(fmt::format("a value is nested deeper than {} levels", limits_.max_value_depth));
  }
  if (list.weight() > limits_.max_value_weight) {
    return Fail(fmt::format("a value has more than {} elements", limits_.max_value_weight));
  }
  return list;
}

Value Evaluator::MakeDict(std::shared_ptr<DictObject> dict) {
  const uint64_t num_entries = dict->entries.size();
  if (!Charge(num_entries) || !ChargeBytes(num_entries * 4 * sizeof(Value) + sizeof(DictObject))) return Value();
  Value value = Value::Dict(std::move(dict));
  if (value.depth() > limits_.max_value_depth) {
    return Fail(fmt::format("a value is nested deeper than {} levels", limits_.max_value_depth));
  }
  if (value.weight() > limits_.max_value_weight) {
    return Fail(fmt::format("a value has more than {} elements", limits_.max_value_weight));
  }
  return value;
}

Value Evaluator::MakeNamespace() {
  if (!ChargeBytes(512)) return Value();  // kept to the end, with its table
  auto ns = std::make_shared<NamespaceObject>();
  namespaces_.push_back(ns);
  return Value::Namespace(std::move(ns));
}

Text Evaluator::Str(const Value& v) {
  if (v.Is(Kind::kString)) return v.text();
  if (!Charge(v.weight())) return Text();
  Result<Text> text = ToText(v, limits_.max_output_bytes);
  if (!text.ok()) {
    FailStatus(text.status());
    return Text();
  }
  ChargeBytes(text->num_bytes());
  return std::move(text).value();
}

Result<Text> Evaluator::Run() {
  Text out;
  out_ = &out;
  PushScope();  // a set of the template shadows the request's variables
  ExecBody(program_.body);
  if (failed()) return status_;
  return out;
}

void Evaluator::PushScope() {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  scope_ = std::move(scope);
}

void Evaluator::Emit(const Text& text) {
  if (failed()) return;
  if (out_->num_bytes() + text.num_bytes() > limits_.max_output_bytes) {
    Fail(fmt::format("the output is longer than {} bytes", limits_.max_output_bytes));
    return;
  }
  if (out_->num_runs() + text.num_runs() > limits_.max_runs) {
    Fail("the output mixes input and own text too often");
    return;
  }
  if (ChargeBytes(text.num_bytes())) out_->Append(text);
}

Text Evaluator::Capture(const Body& body) {
  Text text;
  Text* const outer = std::exchange(out_, &text);
  ExecBody(body);
  out_ = outer;
  return text;
}

Evaluator::Flow Evaluator::ExecBody(const Body& body) {
  DepthGuard guard(this);
  for (const StmtPtr& stmt : body) {
    if (failed()) break;
    const Flow flow = Exec(*stmt);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::Exec(const Stmt& stmt) {
  line_ = stmt.line;
  if (!Charge(1)) return Flow::kNext;
  switch (stmt.kind) {
    case StmtKind::kText:
      Emit(stmt.text);
      return Flow::kNext;
    case StmtKind::kPrint: {
      const Value value = Eval(*stmt.expr);
      if (!failed()) Emit(Str(value));
      return Flow::kNext;
    }
    case StmtKind::kIf:
      return ExecIf(stmt);
    case StmtKind::kFor:
      return ExecFor(stmt);
    case StmtKind::kSet:
    case StmtKind::kSetBlock:
      ExecSet(stmt);
      return Flow::kNext;
    case StmtKind::kMacro:
      scope_->vars[stmt.name] = MakeMacro(stmt);
      return Flow::kNext;
    case StmtKind::kCall:
      ExecCallBlock(stmt);
      return Flow::kNext;
    case StmtKind::kFilter:
      ExecFilter(stmt);
      return Flow::kNext;
    case StmtKind::kWith:
      return ExecWith(stmt);
    case StmtKind::kScope: {
      PushScope();
      const Flow flow = ExecBody(stmt.body);
      PopScope();
      return flow;
    }
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::ExecIf(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition == nullptr) return ExecBody(branch.body);
    const bool is_taken = IsTrue(Eval(*branch.condition));
    if (failed()) return Flow::kNext;
    if (is_taken) return ExecBody(branch.body);
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::ExecFor(const Stmt& stmt) {
  std::vector<Value> items;
  const Value iterable = Eval(*stmt.expr);
  if (failed() || !Iterate(iterable, &items)) return Flow::kNext;
  if (stmt.condition != nullptr) {
    std::vector<Value> kept;
    for (const Value& item : items) {
      PushScope();
      Assign(*stmt.target, item);
      if (IsTrue(Eval(*stmt.condition))) kept.push_back(item);
      PopScope();
      if (failed()) return Flow::kNext;
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    PushScope();
    const Flow flow = ExecBody(stmt.else_body);
    PopScope();
    return flow;
  }
  if (!ChargeBytes(items.size() * sizeof(Value))) return Flow::kNext;
  const size_t num_items = items.size();
  auto loop = std::make_shared<LoopObject>();
  loop->items = std::move(items);
  const Value loop_value = Value::Loop(loop);
  if (loop_value.depth() > limits_.max_value_depth) {
    Fail(fmt::format("a value is nested deeper than {} levels", limits_.max_value_depth));
  }
  for (size_t i = 0; i < num_items && Charge(1); ++i) {
    loop->index0 = i;
    PushScope();
    scope_->vars["loop"] = loop_value;
    Assign(*stmt.target, loop->items[i]);
    const Flow flow = ExecBody(stmt.body);
    PopScope();
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

void Evaluator::Assign(const Expr& target, const Value& value) {
  if (failed()) return;
  if (target.kind == ExprKind::kName) {
    scope_->vars[target.name] = value;
    return;
  }
  if (target.kind == ExprKind::kAttribute) {
    const Value ns = EvalName(*target.children[0]);
    if (failed()) return;
    if (!ns.Is(Kind::kNamespace)) {
      Fail(fmt::format("cannot assign the attribute '{}' of a {}; only a namespace takes one", target.name,
                       TypeName(ns)));
      return;
    }
    if (ChargeBytes(4 * sizeof(Value))) ns.ns().attributes.Set(Value::Str(target.name), value);
    return;
  }
  std::vector<Value> items;
  if (!Iterate(value, &items)) return;
  if (items.size() != target.children.size()) {
    Fail(fmt::format("cannot unpack {} values into {} names", items.size(), target.children.size()));
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(*target.children[i], items[i]);
}

void Evaluator::ExecSet(const Stmt& stmt) {
  if (stmt.kind == StmtKind::kSet) {
    Assign(*stmt.target, Eval(*stmt.expr));
    return;
  }
  PushScope();
  Value value = MakeStr(Capture(stmt.body));
  PopScope();
  if (!failed() && stmt.expr != nullptr) value = ApplyFilters(*stmt.expr, value);
  Assign(*stmt.target, value);
}

void Evaluator::ExecFilter(const Stmt& stmt) {
  PushScope();
  const Value body = MakeStr(Capture(stmt.body));
  PopScope();
  if (!failed()) Emit(Str(ApplyFilters(*stmt.expr, body)));
}

Evaluator::Flow Evaluator::ExecWith(const Stmt& stmt) {
  std::vector<Value> values;  // all are evaluated outside, as Jinja does
  for (const Param& param : stmt.params) values.push_back(Eval(*param.fallback));
  PushScope();
  for (size_t i = 0; i < values.size(); ++i) scope_->vars[stmt.params[i].name] = values[i];
  const Flow flow = failed() ? Flow::kNext : ExecBody(stmt.body);
  PopScope();
  return flow;
}

Value Evaluator::MakeMacro(const Stmt& stmt) {
  if (!ChargeBytes(512)) return Value();  // the macro and the scope it keeps alive
  for (auto scope = scope_; scope != nullptr && !scope->is_captured; scope = scope->parent) {
    scope->is_captured = true;
    captured_scopes_.push_back(scope);
  }
  auto macro = std::make_shared<CallableObject>();
  macro->kind = CallKind::kMacro;
  macro->name = stmt.name;
  macro->macro = &stmt;
  macro->scope = scope_;
  return Value::Callable(std::move(macro));
}

void Evaluator::ExecCallBlock(const Stmt& stmt) {
  const Value callee = Eval(*stmt.expr->children[0]);
  Args args;
  if (failed() || !EvalArgs(*stmt.expr, &args)) return;
  args.named.emplace_back("caller", MakeMacro(stmt));
  const Value result = Call(callee, args);
  if (!failed()) Emit(Str(result));
}

Value Evaluator::CallMacro(const CallableObject& macro, const Args& args) {
  DepthGuard guard(this);
  const std::vector<Param>& params = macro.macro->params;
  if (args.positional.size() > params.size()) {
    return Fail(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, params.size()));
  }
  auto scope = std::make_shared<Scope>();
  scope->parent = macro.scope;
  for (size_t i = 0; i < args.positional.size(); ++i) scope->vars[params[i].name] = args.positional[i];
  for (const auto& [name, value] : args.named) {
    bool is_known = name == "caller";
    for (const Param& param : params) is_known = is_known || param.name == name;
    if (!is_known) return Fail(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, name));
    if (!scope->vars.emplace(name, value).second) {
      return Fail(fmt::format("macro '{}' got two values for '{}'", macro.name, name));
    }
  }
  scope->vars.emplace("caller", Value::Undefined("No caller defined"));
  const std::shared_ptr<Scope> outer = std::exchange(scope_, scope);
  for (const Param& param : params) {
    if (scope->vars.count(param.name) > 0) continue;
    Value value = param.fallback != nullptr
                      ? Eval(*param.fallback)
                      : Value::Undefined(fmt::format("parameter '{}' was not provided", param.name));
    scope->vars[param.name] = std::move(value);
  }
  Text text;
  if (!failed()) text = Capture(macro.macro->body);
  scope_ = outer;
  return MakeStr(std::move(text));
}

}  // namespace lockstep::tokenizer::jinja
