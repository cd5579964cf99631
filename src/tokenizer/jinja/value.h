// The values of a template: Python's none, bool, int, float, str, list, tuple, dict, and Jinja's own objects.
//
// Requires: lists and dicts are never changed once they are a Value (the sandbox is Jinja's immutable one), so values
//           hold no cycles; a Namespace can, and the evaluator empties all of them at the end
// Errors:   none here; the evaluator checks kinds first (LS_CHECK on a wrong accessor)
// Threads:  a value may be read by any thread once built; a generator, a loop and a namespace by one
// Source:   Python's data model, as far as chat templates see it; integers are 64 bits (Python's have no limit)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tokenizer/jinja/text.h"

namespace lockstep::tokenizer::jinja {

class Value;
struct Stmt;
struct Scope;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kDict,
  kNamespace,
  kLoop,
  kCallable,
};
// What Python calls the sequence. They differ in printing, indexing, equality and len().
enum class ListKind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };
enum class CallKind : uint8_t { kGlobal, kMethod, kMacro, kCycle };

struct Object {
  virtual ~Object() = default;
};
struct TextObject;
struct ListObject;
struct DictObject;
struct NamespaceObject;
struct LoopObject;
struct CallableObject;

class Value {
 public:
  Value() = default;  // undefined, without a reason
  static Value Undefined(std::string reason);
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool b);
  // is_input: the number came from the request; its printed form is then marked as input.
  static Value Int(int64_t i, bool is_input = false);
  static Value Float(double d, bool is_input = false);
  static Value Str(Text text);
  static Value Str(std::string text, bool is_input = false) { return Str(Text(std::move(text), is_input)); }
  static Value List(std::vector<Value> items, ListKind kind = ListKind::kList);
  static Value Range(int64_t start, int64_t stop, int64_t step, std::vector<Value> items);
  static Value Dict(std::shared_ptr<DictObject> dict);
  static Value Namespace(std::shared_ptr<NamespaceObject> ns);
  static Value Loop(std::shared_ptr<LoopObject> loop);
  static Value Callable(std::shared_ptr<CallableObject> callable);

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsNumber() const { return Is(Kind::kInt) || Is(Kind::kFloat) || Is(Kind::kBool); }
  bool IsIntegral() const { return Is(Kind::kInt) || Is(Kind::kBool); }
  bool scalar_is_input() const { return scalar_is_input_; }

  bool boolean() const { return int_ != 0; }
  int64_t integer() const { return int_; }  // also of a bool
  double number() const { return Is(Kind::kFloat) ? float_ : static_cast<double>(int_); }
  const Text& text() const;
  const std::string& str() const { return text().bytes(); }
  const ListObject& list() const;
  ListObject& mutable_list() const;
  const DictObject& dict() const;
  NamespaceObject& ns() const;
  LoopObject& loop() const;
  const CallableObject& callable() const;
  // Why it is undefined, e.g. "'x' is undefined".
  std::string reason() const;
  const Object* identity() const { return object_.get(); }

  bool IsList(ListKind kind) const;
  // 1 + the deepest element; the evaluator bounds it, so that walking a value cannot overflow the stack.
  uint32_t depth() const;
  // The number of values a walk meets, shared ones counted each time they are met; saturates. Bounded for the same
  // reason: [x, x] in a loop doubles the walk while it adds one list.
  uint64_t weight() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  bool scalar_is_input_ = false;
  union {
    int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

struct TextObject : Object {
  Text text;
};

struct ListObject : Object {
  ListKind kind = ListKind::kList;
  uint32_t depth = 1;
  uint64_t weight = 1;
  std::vector<Value> items;
  size_t next_idx = 0;                    // generators: the items before it are used up
  int64_t start = 0, stop = 0, step = 1;  // ranges, for printing
};

// Ordered by insertion, as Python's.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> index;  // HashKey(key) -> entry
  uint32_t depth = 1;
  uint64_t weight = 1;

  // Keeps the first key and replaces the value when the key is present. False when the key cannot be hashed.
  bool Set(const Value& key, Value value);
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
};

struct NamespaceObject : Object {
  DictObject attributes;
};

struct LoopObject : Object {
  std::vector<Value> items;
  uint32_t depth = 1;
  size_t index0 = 0;
  Value last_changed;  // for loop.changed()
  bool has_last_changed = false;
};

struct CallableObject : Object {
  CallKind kind = CallKind::kGlobal;
  std::string name;
  Value self;                    // methods, cycle: the object
  const Stmt* macro = nullptr;   // macros: lives as long as the program
  std::shared_ptr<Scope> scope;  // macros: where it was defined
};

// A text that is equal for equal keys (1, 1.0 and true are one key), or nothing when Python calls the type unhashable.
std::optional<std::string> HashKey(const Value& key);
// Python's bool(x).
bool IsTrue(const Value& v);
// Python's ==.
bool Equal(const Value& a, const Value& b);
// Python's type(x).__name__, for messages.
const char* TypeName(const Value& v);

}  // namespace lockstep::tokenizer::jinja
