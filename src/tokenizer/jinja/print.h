// Values as text: Python's str() and repr(), and the tojson that transformers gives to templates.
//
// Units:   max_bytes bounds the result, since a shared value can print to much more than it holds
// Errors:  kInvalidArgument  the result is longer than max_bytes; tojson of a value that JSON has no form for
// Threads: any
// Cost:    one walk of the value (Value::weight)
// Source:  CPython 3.11 repr of the built-in types; json.dumps as transformers calls it
#pragma once

#include "base/result.h"
#include "tokenizer/jinja/value.h"

namespace lockstep::tokenizer::jinja {

// str(v) with marks: a string keeps its own; for all others one origin, input when any part of the value was.
Result<Text> ToText(const Value& v, size_t max_bytes);
Result<Text> ToRepr(const Value& v, size_t max_bytes);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;          // the text of one level
  std::string item_separator;  // set by the caller: json.dumps' default depends on the indent
  std::string key_separator;
};
Result<Text> ToJson(const Value& v, const JsonStyle& style, size_t max_bytes);

std::string FloatText(double d);
// True when any string or number inside came from the request.
bool HasInput(const Value& v);

// A JSON text as a value. Strings, keys and numbers in it get the mark.
// Errors: kInvalidArgument  not JSON, nested deeper than 100, or an integer beyond 64 bits
Result<Value> FromJson(const std::string& json, bool is_input);

}  // namespace lockstep::tokenizer::jinja
