// Renders a parsed template, inside limits: a template comes from a file and a request fills it, so both are hostile.
//
// Units:   steps: one a statement, expression or element handled; *_bytes in bytes
// Errors:  kInvalidArgument  raise_exception: the template's own text, nothing added; or "template line N: ..." with
//                            what Jinja would refuse (an undefined name used, wrong types); or the limit that was met
//          kUnsupported      a function or a form that Lockstep does not have
// Threads: one Evaluator a thread; the program may be shared
// Cost:    bounded by Limits
// Source:  Jinja 3.1's ImmutableSandboxedEnvironment with the default Undefined. Differs: integers are 64 bits, the
//          `if` of a for runs before the loop, macros take no varargs, and surplus arguments are always errors.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/builtins.h"

namespace lockstep::tokenizer::jinja {

struct Limits {
  // 10 000 messages at 400 steps each (Llama 3.1's template takes about 60 a message). Reading 64 bytes of a string is
  // a step too: ten filters over a prompt of 4 MiB take 0.7 million, and the worst template ends after some seconds.
  uint64_t max_steps = 4'000'000;
  size_t max_output_bytes = size_t{8} << 20;  // also of any one string
  size_t max_runs = 1'000'000;                // changes between input and own text, in the same
  // All bytes ever allocated for values, freed or not, so it bounds both memory and copying.
  uint64_t max_work_bytes = uint64_t{1} << 30;
  // Nested evaluations, macro calls included; a level takes up to 2 KiB of stack with sanitizers on.
  uint32_t max_depth = 500;
  uint32_t max_value_depth = 150;
  uint64_t max_value_weight = 4'000'000;
  int64_t max_range_elems = 100'000;  // Jinja's MAX_RANGE
};

struct Scope {
  std::shared_ptr<Scope> parent;
  std::unordered_map<std::string, Value> vars;
  bool is_captured = false;  // a macro holds it
};

class Evaluator {
 public:
  Evaluator(const Program& program, Limits limits) : program_(program), limits_(limits) {}
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  void SetGlobal(const std::string& name, Value value);
  // What strftime_now prints; without it the function is undefined, and templates use their own fallback.
  void SetClock(const std::tm& clock) { clock_ = clock; }
  // Once an Evaluator.
  Result<Text> Run();

  // ---- for builtins ----
  // Records the first error; returns an undefined value, so that a builtin can return it.
  Value Fail(const std::string& what) { return Fail(StatusCode::kInvalidArgument, what); }
  Value Fail(StatusCode code, const std::string& what);
  Value FailStatus(const Status& status);
  Value Raise(const std::string& own_text);
  bool failed() const { return !status_.ok(); }
  // False when the budget is used up or an error came before.
  bool Charge(uint64_t num_steps);
  bool ChargeBytes(uint64_t num_bytes);
  const Limits& limits() const { return limits_; }
  const std::optional<std::tm>& clock() const { return clock_; }

  Value MakeStr(Text text);
  Value MakeStr(std::string text, bool is_input) { return MakeStr(Text(std::move(text), is_input)); }
  Value MakeList(std::vector<Value> items, ListKind kind = ListKind::kList);
  Value MakeDict(std::shared_ptr<DictObject> dict);
  Value MakeNamespace();
  Text Str(const Value& v);
  // The elements that a Python for would see; uses up a generator. False after an error.
  bool Iterate(const Value& v, std::vector<Value>* items);
  Value GetAttribute(const Value& object, const std::string& name);
  Value GetItem(const Value& object, const Value& key);
  // A dotted path or an index, as map(attribute=...) takes it.
  Value GetPath(const Value& object, const Value& path);
  Value CallBuiltin(const Builtin& builtin, const Value& self, const Args& args);
  bool EqualValues(const Value& a, const Value& b);
  // a op b for <, <=, >, >=.
  bool Less(const Value& a, const Value& b, const char* op = "<");
  bool Contains(const Value& container, const Value& item);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  Flow ExecBody(const Body& body);
  Flow Exec(const Stmt& stmt);
  Flow ExecFor(const Stmt& stmt);
  Flow ExecIf(const Stmt& stmt);
  void ExecSet(const Stmt& stmt);
  void ExecCallBlock(const Stmt& stmt);
  Flow ExecWith(const Stmt& stmt);
  void ExecFilter(const Stmt& stmt);
  void Assign(const Expr& target, const Value& value);
  // Runs the body into a text of its own.
  Text Capture(const Body& body);
  void Emit(const Text& text);
  Value MakeMacro(const Stmt& stmt);

  Value Eval(const Expr& e);
  Value EvalNode(const Expr& e);
  Value EvalName(const Expr& e);
  Value EvalCall(const Expr& e);
  Value EvalCompare(const Expr& e);
  Value EvalSlice(const Expr& e);
  Value EvalConcat(const Expr& e);
  Value EvalUnary(const Expr& e);
  Value EvalDict(const Expr& e);
  bool EvalArgs(const Expr& e, Args* args);
  Value ApplyFilters(const Expr& e, const Value& base);
  Value Call(const Value& callee, const Args& args);
  Value CallMacro(const CallableObject& macro, const Args& args);
  Value LoopAttribute(LoopObject& loop, const std::string& name);
  Value Method(const Value& self, const std::string& name);

  Value Binary(const std::string& op, const Value& a, const Value& b);
  Value Add(const Value& a, const Value& b);
  Value Multiply(const Value& a, const Value& b);
  Value Repeat(const Value& sequence, int64_t count);
  Value IntegerOp(const std::string& op, int64_t a, int64_t b, bool is_input);
  Value FloatOp(const std::string& op, double a, double b, bool is_input);
  Value OperandError(const std::string& op, const Value& a, const Value& b);

  void PushScope();
  void PopScope() { scope_ = scope_->parent; }

  struct DepthGuard {
    explicit DepthGuard(Evaluator* e);
    ~DepthGuard() { --eval->depth_; }
    Evaluator* eval;
  };

  const Program& program_;
  const Limits limits_;
  std::optional<std::tm> clock_;
  Status status_;
  uint64_t num_steps_ = 0;
  uint64_t num_work_bytes_ = 0;
  uint32_t depth_ = 0;
  int line_ = 1;
  Text* out_ = nullptr;
  const Value* filter_base_ = nullptr;  // the captured body while a filter block's chain is evaluated
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  // Both can take part in cycles; the destructor empties them.
  std::vector<std::shared_ptr<Scope>> captured_scopes_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
};

}  // namespace lockstep::tokenizer::jinja
