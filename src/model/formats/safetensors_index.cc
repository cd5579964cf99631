#include "model/formats/safetensors_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/formats/gguf.h"
#include "model/formats/json_events.h"

namespace lockstep::model {
namespace {

constexpr size_t kMaxIndexBytes = 64 << 20;  // over twice the largest published one
constexpr size_t kMaxFileNameBytes = 255;
constexpr JsonLimits kLimits = {.max_depth = 8, .max_values = 1 << 21, .max_text_bytes = 1 << 16};

bool IsShardName(const std::string& name) {
  return name.size() <= kMaxFileNameBytes && name.ends_with(".safetensors") && name[0] != '.' &&
         std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == '/' || c == '\\'; });
}

class IndexHandler final : public JsonHandler {
 public:
  explicit IndexHandler(const std::string& file) : file_(file) {}

  std::vector<std::pair<std::string, std::string>> weight_map;
  bool has_weight_map() const { return has_weight_map_; }

  Status Key(std::string key) override {
    if (depth_ == 1) root_key_ = key;
    if (InMap()) weight_map.emplace_back(std::move(key), std::string());
    return OkStatus();
  }
  Status Scalar(JsonScalar value) override {
    if (depth_ == 0) return CorruptFile(fmt::format("{}: is {}, an object expected", file_, value.Shown()));
    if (AtMap()) return BadMap(value.Shown());
    if (!InMap()) return OkStatus();
    const std::string& tensor = weight_map.back().first;
    if (value.kind != JsonScalar::Kind::kString || !IsShardName(value.text)) {
      return CorruptFile(fmt::format("{}: tensor {}: {} is not the name of a *.safetensors file in this folder", file_,
                                     GgufFile::Shown(tensor), value.Shown()));
    }
    weight_map.back().second = std::move(value.text);
    return OkStatus();
  }
  Status BeginObject() override {
    if (AtMap() && has_weight_map_) return CorruptFile(fmt::format("{}: key weight_map twice", file_));
    has_weight_map_ |= AtMap();
    return Open("an object");
  }
  Status BeginArray() override {
    if (depth_ == 0) return CorruptFile(fmt::format("{}: is an array, an object expected", file_));
    if (AtMap()) return BadMap("an array");
    return Open("an array");
  }
  Status EndObject() override {
    --depth_;
    return OkStatus();
  }
  Status EndArray() override {
    --depth_;
    return OkStatus();
  }

 private:
  bool AtMap() const { return depth_ == 1 && root_key_ == "weight_map"; }
  bool InMap() const { return depth_ == 2 && root_key_ == "weight_map"; }
  Status BadMap(const std::string& what) const {
    return CorruptFile(fmt::format("{}: key weight_map: is {}, an object expected", file_, what));
  }
  Status Open(const char* what) {
    if (InMap()) {
      return CorruptFile(fmt::format("{}: tensor {}: is {}, a file name expected", file_,
                                     GgufFile::Shown(weight_map.back().first), what));
    }
    ++depth_;
    return OkStatus();
  }

  const std::string& file_;
  std::string root_key_;
  int depth_ = 0;
  bool has_weight_map_ = false;
};

}  // namespace

Result<SafetensorsIndex> SafetensorsIndex::Parse(std::span<const uint8_t> text, const std::string& name) {
  if (text.size() > kMaxIndexBytes) {
    return CorruptFile(fmt::format("{}: {} bytes, at most {} expected", name, text.size(), kMaxIndexBytes));
  }
  IndexHandler handler(name);
  LS_RETURN_IF_ERROR(ReadJson(text, name, kLimits, &handler));
  if (!handler.has_weight_map()) return CorruptFile(fmt::format("{}: key weight_map: missing", name));
  if (handler.weight_map.empty()) return CorruptFile(fmt::format("{}: key weight_map: names no tensor", name));
  SafetensorsIndex index;
  for (const auto& [tensor, file] : handler.weight_map) index.files.push_back(file);
  std::sort(index.files.begin(), index.files.end());
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  for (auto& [tensor, file] : handler.weight_map) {
    auto at = std::lower_bound(index.files.begin(), index.files.end(), file);
    index.tensors.emplace_back(std::move(tensor), static_cast<uint32_t>(at - index.files.begin()));
  }
  std::sort(index.tensors.begin(), index.tensors.end());
  for (size_t i = 1; i < index.tensors.size(); ++i) {
    if (index.tensors[i].first != index.tensors[i - 1].first) continue;
    return CorruptFile(fmt::format("{}: tensor {}: twice", name, GgufFile::Shown(index.tensors[i].first)));
  }
  return index;
}

}  // namespace lockstep::model
