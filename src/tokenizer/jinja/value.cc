#include "tokenizer/jinja/value.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep::tokenizer::jinja {
namespace {

constexpr uint64_t kMaxWeight = uint64_t{1} << 40;  // where weights stop growing; far above any limit

uint64_t AddWeight(uint64_t a, uint64_t b) {
  return std::min(a + b, kMaxWeight);
}

struct UndefinedObject : Object {
  std::string reason;
};

}  // namespace

Value Value::Undefined(std::string reason) {
  Value v;
  auto object = std::make_shared<UndefinedObject>();
  object->reason = std::move(reason);
  v.object_ = std::move(object);
  return v;
}

Value Value::Bool(bool b) {
  Value v(Kind::kBool);
  v.int_ = b;
  return v;
}

Value Value::Int(int64_t i, bool is_input) {
  Value v(Kind::kInt);
  v.int_ = i;
  v.scalar_is_input_ = is_input;
  return v;
}

Value Value::Float(double d, bool is_input) {
  Value v(Kind::kFloat);
  v.float_ = d;
  v.scalar_is_input_ = is_input;
  return v;
}

Value Value::Str(Text text) {
  Value v(Kind::kString);
  auto object = std::make_shared<TextObject>();
  object->text = std::move(text);
  v.object_ = std::move(object);
  return v;
}

Value Value::List(std::vector<Value> items, ListKind kind) {
  Value v(Kind::kList);
  auto object = std::make_shared<ListObject>();
  object->kind = kind;
  for (const Value& item : items) {
    object->depth = std::max(object->depth, item.depth() + 1);
    object->weight = AddWeight(object->weight, item.weight());
  }
  object->items = std::move(items);
  v.object_ = std::move(object);
  return v;
}

Value Value::Range(int64_t start, int64_t stop, int64_t step, std::vector<Value> items) {
  Value v = List(std::move(items), ListKind::kRange);
  ListObject& list = v.mutable_list();
  list.start = start;
  list.stop = stop;
  list.step = step;
  return v;
}

Value Value::Dict(std::shared_ptr<DictObject> dict) {
  Value v(Kind::kDict);
  for (const auto& [key, value] : dict->entries) {
    dict->depth = std::max({dict->depth, key.depth() + 1, value.depth() + 1});
    dict->weight = AddWeight(dict->weight, AddWeight(key.weight(), value.weight()));
  }
  v.object_ = std::move(dict);
  return v;
}

Value Value::Namespace(std::shared_ptr<NamespaceObject> ns) {
  Value v(Kind::kNamespace);
  v.object_ = std::move(ns);
  return v;
}

Value Value::Loop(std::shared_ptr<LoopObject> loop) {
  Value v(Kind::kLoop);
  for (const Value& item : loop->items) loop->depth = std::max(loop->depth, item.depth() + 1);
  v.object_ = std::move(loop);
  return v;
}

Value Value::Callable(std::shared_ptr<CallableObject> callable) {
  Value v(Kind::kCallable);
  v.object_ = std::move(callable);
  return v;
}

const Text& Value::text() const {
  LS_CHECK(Is(Kind::kString));
  return static_cast<const TextObject&>(*object_).text;
}
const ListObject& Value::list() const {
  return mutable_list();
}
ListObject& Value::mutable_list() const {
  LS_CHECK(Is(Kind::kList));
  return static_cast<ListObject&>(*object_);
}
const DictObject& Value::dict() const {
  LS_CHECK(Is(Kind::kDict));
  return static_cast<const DictObject&>(*object_);
}
NamespaceObject& Value::ns() const {
  LS_CHECK(Is(Kind::kNamespace));
  return static_cast<NamespaceObject&>(*object_);
}
LoopObject& Value::loop() const {
  LS_CHECK(Is(Kind::kLoop));
  return static_cast<LoopObject&>(*object_);
}
const CallableObject& Value::callable() const {
  LS_CHECK(Is(Kind::kCallable));
  return static_cast<const CallableObject&>(*object_);
}

std::string Value::reason() const {
  if (!Is(Kind::kUndefined) || object_ == nullptr) return "the value is undefined";
  return static_cast<const UndefinedObject&>(*object_).reason;
}

bool Value::IsList(ListKind kind) const {
  return Is(Kind::kList) && list().kind == kind;
}

uint32_t Value::depth() const {
  if (Is(Kind::kList)) return list().depth;
  if (Is(Kind::kDict)) return dict().depth;
  // A bound method or a cycle function carries its object along.
  if (Is(Kind::kCallable)) return callable().self.depth() + 1;
  if (Is(Kind::kLoop)) return loop().depth;
  return 1;
}

uint64_t Value::weight() const {
  if (Is(Kind::kList)) return list().weight;
  if (Is(Kind::kDict)) return dict().weight;
  // A string costs its bytes: 64 of them count as one value.
  if (Is(Kind::kString)) return 1 + text().num_bytes() / 64;
  return 1;
}

bool DictObject::Set(const Value& key, Value value) {
  std::optional<std::string> hash = HashKey(key);
  if (!hash) return false;
  const auto [at, is_new] = index.emplace(std::move(*hash), entries.size());
  if (is_new) {
    entries.emplace_back(key, std::move(value));
  } else {
    entries[at->second].second = std::move(value);
  }
  return true;
}

const Value* DictObject::Find(const Value& key) const {
  const std::optional<std::string> hash = HashKey(key);
  if (!hash) return nullptr;
  const auto at = index.find(*hash);
  return at == index.end() ? nullptr : &entries[at->second].second;
}

const Value* DictObject::Find(std::string_view key) const {
  const auto at = index.find("s" + std::string(key));
  return at == index.end() ? nullptr : &entries[at->second].second;
}

std::optional<std::string> HashKey(const Value& key) {
  switch (key.kind()) {
    case Kind::kUndefined:
      return "u";
    case Kind::kNone:
      return "n";
    case Kind::kBool:
    case Kind::kInt:
      return fmt::format("i{}", key.integer());
    case Kind::kFloat: {
      const double d = key.number();
      if (d == std::floor(d) && std::fabs(d) < 9e15) return fmt::format("i{}", static_cast<int64_t>(d));
      return fmt::format("f{}", d);
    }
    case Kind::kString:
      return "s" + key.str();
    case Kind::kList: {
      if (key.list().kind != ListKind::kTuple) return std::nullopt;
      std::string out = "(";
      for (const Value& item : key.list().items) {
        const std::optional<std::string> part = HashKey(item);
        if (!part) return std::nullopt;
        // The length in front keeps ("a", "b") and ("a,sb") apart.
        out += fmt::format("{}:{}", part->size(), *part);
      }
      return out;
    }
    case Kind::kDict:
      return std::nullopt;
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return fmt::format("p{}", static_cast<const void*>(key.identity()));
  }
  return std::nullopt;
}

bool IsTrue(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return v.integer() != 0;
    case Kind::kFloat:
      return v.number() != 0;
    case Kind::kString:
      return !v.text().empty();
    case Kind::kList:
      return v.IsList(ListKind::kGenerator) || !v.list().items.empty();
    case Kind::kDict:
      return !v.dict().entries.empty();
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return true;
  }
  return true;
}

bool Equal(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsIntegral() && b.IsIntegral()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.str() == b.str();
    case Kind::kList: {
      const ListObject& x = a.list();
      const ListObject& y = b.list();
      if (&x == &y) return true;
      // Python compares generators and views by identity or as sets; templates do neither.
      if (x.kind != y.kind || x.kind == ListKind::kGenerator || x.items.size() != y.items.size()) {
        return false;
      }
      for (size_t i = 0; i < x.items.size(); ++i) {
        if (!Equal(x.items[i], y.items[i])) return false;
      }
      return true;
    }
    case Kind::kDict: {
      const DictObject& x = a.dict();
      const DictObject& y = b.dict();
      if (x.entries.size() != y.entries.size()) return false;
      for (const auto& [key, value] : x.entries) {
        const Value* other = y.Find(key);
        if (other == nullptr || !Equal(value, *other)) return false;
      }
      return true;
    }
    default:
      return a.identity() == b.identity();
  }
}

const char* TypeName(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCallable:
      return "function";
    case Kind::kList:
      break;
  }
  switch (v.list().kind) {
    case ListKind::kList:
      return "list";
    case ListKind::kTuple:
      return "tuple";
    case ListKind::kRange:
      return "range";
    case ListKind::kKeys:
      return "dict_keys";
    case ListKind::kValues:
      return "dict_values";
    case ListKind::kItems:
      return "dict_items";
    case ListKind::kGenerator:
      return "generator";
  }
  return "object";
}

}  // namespace lockstep::tokenizer::jinja
