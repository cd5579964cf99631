#include "model/formats/json_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/mmap_file.h"
#include "model/formats/gguf.h"

namespace lockstep::model {
namespace {

constexpr size_t kMaxBytes = 4 << 20;
constexpr JsonLimits kLimits = {.max_depth = 32, .max_values = 1 << 16, .max_text_bytes = 1 << 20};

}  // namespace

class JsonConfig::Builder final : public JsonHandler {
 public:
  explicit Builder(std::vector<Node>* nodes) : nodes_(nodes) {}

  Status Key(std::string key) override {
    key_ = std::move(key);
    return OkStatus();
  }
  Status Scalar(JsonScalar value) override {
    Add(Kind::kScalar).value = std::move(value);
    return OkStatus();
  }
  Status BeginObject() override { return Open(Kind::kObject); }
  Status BeginArray() override { return Open(Kind::kArray); }
  Status EndObject() override { return Close(); }
  Status EndArray() override { return Close(); }

 private:
  Node& Add(Kind kind) {
    const uint32_t parent = open_.empty() ? 0 : open_.back();
    nodes_->push_back({parent, kind, std::move(key_), {}});
    key_.clear();
    return nodes_->back();
  }
  Status Open(Kind kind) {
    Add(kind);
    open_.push_back(static_cast<uint32_t>(nodes_->size() - 1));
    return OkStatus();
  }
  Status Close() {
    open_.pop_back();
    return OkStatus();
  }

  std::vector<Node>* nodes_;
  std::vector<uint32_t> open_;
  std::string key_;
};

Result<JsonConfig> JsonConfig::Open(const std::string& path) {
  LS_ASSIGN_OR_RETURN(auto mapping, MmapFile::Open(path));
  return Parse(mapping->bytes(), path);
}

Result<JsonConfig> JsonConfig::Parse(std::span<const uint8_t> text, const std::string& name) {
  if (text.size() > kMaxBytes) {
    return CorruptFile(fmt::format("{}: {} bytes, at most {} expected", name, text.size(), kMaxBytes));
  }
  JsonConfig config;
  config.path_ = name;
  Builder builder(&config.nodes_);
  LS_RETURN_IF_ERROR(ReadJson(text, name, kLimits, &builder));
  if (config.nodes_.empty() || config.nodes_[0].kind != Kind::kObject) {
    return CorruptFile(fmt::format("{}: is not a JSON object", name));
  }
  std::vector<std::pair<uint32_t, std::string_view>> keys;
  for (size_t i = 1; i < config.nodes_.size(); ++i) {
    const Node& node = config.nodes_[i];
    if (config.nodes_[node.parent].kind == Kind::kObject) keys.emplace_back(node.parent, node.key);
  }
  std::sort(keys.begin(), keys.end());
  if (auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
    return CorruptFile(fmt::format("{}: key {}: twice", name, GgufFile::Shown(twice->second)));
  }
  return config;
}

const JsonConfig::Node* JsonConfig::Find(std::string_view key) const {
  uint32_t at = 0;
  while (true) {
    const size_t slash = key.find('/');
    const std::string_view part = key.substr(0, slash);
    uint32_t next = at + 1;
    while (next < nodes_.size() && (nodes_[next].parent != at || nodes_[next].key != part)) ++next;
    if (nodes_[at].kind != Kind::kObject || next == nodes_.size()) return nullptr;
    if (slash == std::string_view::npos) return &nodes_[next];
    key.remove_prefix(slash + 1);
    at = next;
  }
}

bool JsonConfig::Has(std::string_view key) const {
  const Node* node = Find(key);
  return node && (node->kind != Kind::kScalar || node->value.kind != JsonScalar::Kind::kNull);
}

Result<const JsonConfig::Node*> JsonConfig::Need(std::string_view key) const {
  if (!Has(key)) return NotFound(fmt::format("{}: key {}: missing", path_, key));
  return Find(key);
}

Status JsonConfig::Bad(std::string_view key, const std::string& text) const {
  return CorruptFile(fmt::format("{}: key {}: {}", path_, key, text));
}

Status JsonConfig::WrongType(std::string_view key, const Node& node, const char* expected) const {
  return Bad(key, fmt::format("is {}, {} expected",
                              node.kind == Kind::kObject  ? "an object"
                              : node.kind == Kind::kArray ? "an array"
                                                          : node.value.Shown(),
                              expected));
}

Status JsonConfig::UintIn(const std::string& key, const Node& node, uint64_t min, uint64_t max) const {
  if (node.kind == Kind::kScalar && node.value.kind == JsonScalar::Kind::kInt) {
    return Bad(key, fmt::format("{} is not in {} to {}", node.value.int_, min, max));
  }
  if (node.kind != Kind::kScalar || node.value.kind != JsonScalar::Kind::kUint) {
    return WrongType(key, node, "an integer");
  }
  if (node.value.uint < min || node.value.uint > max) {
    return Bad(key, fmt::format("{} is not in {} to {}", node.value.uint, min, max));
  }
  return OkStatus();
}

Result<uint64_t> JsonConfig::GetUint(std::string_view key, uint64_t min, uint64_t max) const {
  LS_ASSIGN_OR_RETURN(const Node* node, Need(key));
  LS_RETURN_IF_ERROR(UintIn(std::string(key), *node, min, max));
  return node->value.uint;
}

Result<double> JsonConfig::GetPositive(std::string_view key, double max) const {
  LS_ASSIGN_OR_RETURN(const Node* node, Need(key));
  const JsonScalar& v = node->value;
  double x = v.real;
  if (v.kind == JsonScalar::Kind::kUint) x = static_cast<double>(v.uint);
  if (v.kind == JsonScalar::Kind::kInt) x = static_cast<double>(v.int_);
  if (node->kind != Kind::kScalar || v.kind < JsonScalar::Kind::kUint || v.kind > JsonScalar::Kind::kFloat) {
    return WrongType(key, *node, "a number");
  }
  if (!(x > 0 && x <= max)) return Bad(key, fmt::format("{} is not in (0, {}]", x, max));
  return x;
}

Result<bool> JsonConfig::GetBool(std::string_view key) const {
  LS_ASSIGN_OR_RETURN(const Node* node, Need(key));
  if (node->kind != Kind::kScalar || node->value.kind != JsonScalar::Kind::kBool) {
    return WrongType(key, *node, "true or false");
  }
  return node->value.boolean;
}

Result<std::string> JsonConfig::GetString(std::string_view key) const {
  LS_ASSIGN_OR_RETURN(const Node* node, Need(key));
  if (node->kind != Kind::kScalar || node->value.kind != JsonScalar::Kind::kString) {
    return WrongType(key, *node, "a string");
  }
  return node->value.text;
}

Result<std::vector<uint64_t>> JsonConfig::GetUints(std::string_view key, uint64_t min, uint64_t max,
                                                   size_t max_count) const {
  LS_ASSIGN_OR_RETURN(const Node* array, Need(key));
  if (array->kind != Kind::kArray) return WrongType(key, *array, "an array");
  const auto parent = static_cast<uint32_t>(array - nodes_.data());
  std::vector<uint64_t> out;
  for (const Node& node : std::span(nodes_).subspan(parent + 1)) {
    if (node.parent != parent) continue;
    if (out.size() == max_count) return Bad(key, fmt::format("more than {} elements", max_count));
    LS_RETURN_IF_ERROR(UintIn(fmt::format("{}[{}]", key, out.size()), node, min, max));
    out.push_back(node.value.uint);
  }
  return out;
}

Result<std::vector<std::string>> JsonConfig::GetStrings(std::string_view key) const {
  LS_ASSIGN_OR_RETURN(const Node* array, Need(key));
  if (array->kind != Kind::kArray) return WrongType(key, *array, "an array");
  const auto parent = static_cast<uint32_t>(array - nodes_.data());
  std::vector<std::string> out;
  for (const Node& node : std::span(nodes_).subspan(parent + 1)) {
    if (node.parent != parent) continue;
    if (node.kind != Kind::kScalar || node.value.kind != JsonScalar::Kind::kString) {
      return WrongType(fmt::format("{}[{}]", key, out.size()), node, "a string");
    }
    out.push_back(node.value.text);
  }
  return out;
}

}  // namespace lockstep::model
