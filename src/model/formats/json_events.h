// Reads untrusted JSON as a stream of events: no tree is built, so a text costs no more memory than its reader keeps.
//
// Units:    bytes; depth counts open objects and arrays
// Requires: the text stays valid during Read
// Errors:   kCorruptFile  no JSON (the text says at which byte), deeper than `max_depth`, more than `max_values` values,
//                         a key or string over `max_text_bytes`; or what a handler returned
//           Each text is one line beginning with the name of the source.
// Threads:  one user
// Cost:     linear in the text; stops at the first error
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace lockstep::model {

struct JsonScalar {
  // kUint: an integer in [0, 2^64). kInt: a negative one (or -0) in int64. Any other number is kFloat.
  enum class Kind : uint8_t { kNull, kBool, kUint, kInt, kFloat, kString };
  Kind kind = Kind::kNull;
  bool boolean = false;
  uint64_t uint = 0;
  int64_t int_ = 0;
  double real = 0;
  std::string text = {};  // of a string: valid UTF-8, perhaps with control characters

  // For messages: what the value is, shortened and printable.
  std::string Shown() const;
};

struct JsonLimits {
  int max_depth;
  uint64_t max_values;  // scalars, objects and arrays
  uint64_t max_text_bytes;
};

class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  // `key` belongs to the next event of the same object.
  virtual Status Key(std::string key) = 0;
  virtual Status Scalar(JsonScalar value) = 0;
  virtual Status BeginObject() = 0;
  virtual Status EndObject() = 0;
  virtual Status BeginArray() = 0;
  virtual Status EndArray() = 0;
};

// `name` begins every message of Read's own; handlers name their source themselves.
Status ReadJson(std::span<const uint8_t> text, const std::string& name, const JsonLimits& limits, JsonHandler* handler);

}  // namespace lockstep::model
