// The tables of filters, tests, global functions and methods. Each entry states its parameters once; binding, and the
// errors for a missing or unknown argument, are done in one place.
//
// Errors:  a builtin reports through Evaluator::Fail and returns an undefined value
// Threads: tables are read-only; any
// Source:  Jinja 3.1's built-in filters and tests and Python's str and dict methods, as chat templates use them
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace lockstep::tokenizer::jinja {

class Evaluator;

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Call {
  const Value& self;                // the filtered or tested value, or the method's object
  const Args& args;                 // as given; variadic builtins read these
  std::vector<const Value*> bound;  // one a parameter; null when not given

  const Value* Get(size_t i) const { return i < bound.size() ? bound[i] : nullptr; }
  bool Flag(size_t i) const { return Get(i) != nullptr && IsTrue(*Get(i)); }
};

using BuiltinFn = Value (*)(Evaluator& eval, const Call& call);

struct Builtin {
  const char* name;
  size_t num_required;
  std::vector<const char*> params;
  BuiltinFn fn;
  bool is_variadic = false;  // takes call.args as they are
};

// Null when there is none of that name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindGlobal(std::string_view name);
const Builtin* FindMethod(const Value& self, std::string_view name);

// The parts of the filter table, one a file.
const std::vector<Builtin>& StringFilters();
const std::vector<Builtin>& SequenceFilters();
const Builtin* FindIn(const std::vector<Builtin>& table, std::string_view name);

}  // namespace lockstep::tokenizer::jinja
