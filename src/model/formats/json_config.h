// config.json of a model folder, read with types and ranges.
//
// Units:   a path is keys joined by '/': "eagle_config/eagle_aux_hidden_state_layer_ids"
// Errors:  kNotFound     a key that must be there is absent or null
//          kCorruptFile  no JSON, not an object, a key twice, another type than asked for, a value out of range
//          Each text is one line naming file, key and value.
// Threads: immutable; any
// Cost:    memory O(file); a file over 4 MiB or of more than 2^16 values is refused. A lookup is linear.
// Source:  the config.json that transformers writes
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/formats/json_events.h"

namespace lockstep::model {

class JsonConfig {
 public:
  static Result<JsonConfig> Open(const std::string& path);
  static Result<JsonConfig> Parse(std::span<const uint8_t> text, const std::string& name);

  const std::string& path() const { return path_; }

  // There and not null: writers put null for "not set".
  bool Has(std::string_view key) const;
  // An integer in [min, max]; 4.0 is none.
  Result<uint64_t> GetUint(std::string_view key, uint64_t min, uint64_t max) const;
  // A number in (0, max], integer or not.
  Result<double> GetPositive(std::string_view key, double max) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string> GetString(std::string_view key) const;  // valid UTF-8
  // At most `max_count` integers in [min, max].
  Result<std::vector<uint64_t>> GetUints(std::string_view key, uint64_t min, uint64_t max, size_t max_count) const;
  Result<std::vector<std::string>> GetStrings(std::string_view key) const;

 private:
  enum class Kind : uint8_t { kScalar, kObject, kArray };
  struct Node {
    uint32_t parent;
    Kind kind;
    std::string key;  // empty for an element of an array
    JsonScalar value;
  };
  class Builder;

  const Node* Find(std::string_view key) const;  // nullptr if absent
  Result<const Node*> Need(std::string_view key) const;
  Status Bad(std::string_view key, const std::string& text) const;
  Status WrongType(std::string_view key, const Node& node, const char* expected) const;
  Status UintIn(const std::string& key, const Node& node, uint64_t min, uint64_t max) const;

  std::string path_;
  std::vector<Node> nodes_;  // in the order of the text; the root is its own parent
};

}  // namespace lockstep::model
