// The goldens of the EAGLE-3 forward pass (tests/golden/eagle3, tools/eagle3_golden.py): a head's folder, written anew from
// the values that the script hashes; a target that is its sizes, embedding and output matrix; the rows that are run, and
// what must come out.
//
//   for (const Eagle3Case& c : Eagle3Cases()) {
//     auto head = model::OpenEagle3Head(c.folder, *c.target, {.weight_dtype = std::nullopt});
//     ... rows 0 to num_extend - 1 at once from c.taps, the next num_chain one by one from the hidden of their parents,
//     ... the rest, which are levels of a tree, level by level
//   }
//
// Errors: a golden file is damaged: nlohmann::json throws, or LS_CHECK fails, and ends the program
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/formats/safetensors.h"
#include "model/formats/weight_source.h"

namespace lockstep::model::testing {

struct Eagle3Case {
  std::string name;
  std::string folder;  // config.json and model.safetensors, F32
  std::unique_ptr<WeightSource> target;
  int num_layers = 0, target_hidden = 0, vocab = 0, hidden = 0, draft_vocab = 0;  // num_layers of the target

  // Rows: num_extend of an extend, each the parent of the next; num_chain recurrent steps from there; then nodes of a tree.
  int num_extend = 0, num_chain = 0;
  std::vector<float> taps;                  // [num_extend, 3, Ht]
  std::vector<int32_t> tokens, positions;   // [rows] target ids; rope positions
  std::vector<int> parents;                 // [rows] -1: none. A row sees its ancestors and itself
  std::vector<std::vector<int>> ancestors;  // [rows] in the order of their positions, the row itself left out

  std::vector<float> hidden_out;  // [rows, H] what a child takes as g: after the last norm if eagle3.norm_output
  std::vector<float> logits;      // [rows, Vd]

  int num_rows() const { return static_cast<int>(tokens.size()); }
  std::span<const float> Hidden(int row) const { return Row(hidden_out, row, hidden); }
  std::span<const float> Logits(int row) const { return Row(logits, row, draft_vocab); }
  // max - min over all rows: a forward in f32 stays within 1e-4 of it.
  static float RangeOf(const std::vector<float>& v) {
    const auto [min, max] = std::minmax_element(v.begin(), v.end());
    return *max - *min;
  }

 private:
  static std::span<const float> Row(const std::vector<float>& v, int row, int width) {
    return std::span(v).subspan(static_cast<size_t>(row) * width, static_cast<size_t>(width));
  }
};

namespace eagle3_case {

// The script's hash; uniform in [-1, 1).
class Hashed {
 public:
  Hashed(uint32_t seed, const std::string& name) : start_(0x811c9dc5u ^ seed) {
    for (char c : name) start_ = (start_ ^ static_cast<uint8_t>(c)) * 0x01000193u;
  }
  float operator[](uint64_t i) const {
    uint32_t x = static_cast<uint32_t>(i) * 0x9e3779b1u + start_;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    x ^= x >> 16;
    return (static_cast<float>(x >> 8) - 8388608.0f) / 8388608.0f;
  }

 private:
  uint32_t start_;
};

inline bool Contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

inline std::vector<float> ValuesOf(uint32_t seed, const std::string& name, const std::vector<uint64_t>& shape) {
  const Hashed hashed(seed, name);
  uint64_t count = 1;
  for (uint64_t dim : shape) count *= dim;
  std::vector<float> out(count);
  float scale = 0.5f, offset = 0;
  if (shape.size() == 1 && Contains(name, "norm")) {
    scale = 0.25f;
    offset = 1;
  } else if (shape.size() == 2) {
    int bits = 0;
    for (uint64_t cols = shape[1]; cols > 0; cols >>= 1) ++bits;
    const int more = Contains(name, "self_attn") && !Contains(name, "o_proj") ? 2 : Contains(name, "mlp") ? 1 : 0;
    scale = Contains(name, "embed") || Contains(name, "embd") ? 1.0f : std::ldexp(1.0f, more - bits / 2);
  }
  for (uint64_t i = 0; i < count; ++i) out[i] = hashed[i] * scale + offset;
  return out;
}

template <typename T>
std::string Raw(const std::vector<T>& v) {
  return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T));
}

class Target : public WeightSource {
 public:
  Target(uint32_t seed, const nlohmann::json& sizes) {
    config_.arch = "llama";
    config_.num_layers = sizes.at("num_layers");
    config_.hidden = sizes.at("hidden");
    config_.vocab = sizes.at("vocab");
    embedding_ = ValuesOf(seed, "target.token_embd.weight", {config_.vocab, config_.hidden});
    output_ = ValuesOf(seed, "target.output.weight", {config_.vocab, config_.hidden});
  }
  const ModelConfig& config() const override { return config_; }
  std::string fingerprint() const override { return "golden"; }
  Result<TensorRef> Get(std::string_view name) const override {
    if (name != "token_embd.weight" && name != "output.weight") return NotFound("golden target: no such tensor");
    const std::vector<float>& v = name == "output.weight" ? output_ : embedding_;
    return TensorRef{
        std::string(name),       DType::kF32, config_.vocab, config_.hidden, reinterpret_cast<const uint8_t*>(v.data()),
        v.size() * sizeof(float)};
  }
  void Fetch(std::span<const uint8_t>) const override {}
  void Drop(std::span<const uint8_t>) const override {}

 private:
  ModelConfig config_;
  std::vector<float> embedding_, output_;
};

// Removed when the program ends.
inline const std::filesystem::path& Folder() {
  struct Temporary {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("lockstep-eagle3-" + std::to_string(getpid()));
    ~Temporary() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Temporary folder;
  return folder.path;
}

inline void WriteHead(const nlohmann::json& json, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << json.at("config").dump(1);
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  auto add = [&](const std::string& name, const char* type, const std::vector<uint64_t>& shape,
                 const std::string& raw) {
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + raw.size()}}};
    data += raw;
  };
  for (const auto& t : json.at("tensors")) {
    const auto shape = t.at("shape").get<std::vector<uint64_t>>();
    add(t.at("name"), "F32", shape, Raw(ValuesOf(json.at("seed"), t.at("name"), shape)));
  }
  if (const auto d2t = json.at("d2t").get<std::vector<int64_t>>(); !d2t.empty()) {
    std::vector<uint8_t> t2d(json.at("target").at("vocab").get<size_t>());
    for (size_t i = 0; i < d2t.size(); ++i) t2d.at(static_cast<size_t>(static_cast<int64_t>(i) + d2t[i])) = 1;
    add("d2t", "I64", {d2t.size()}, Raw(d2t));
    add("t2d", "BOOL", {t2d.size()}, Raw(t2d));
  }
  std::string text = header.dump();
  text += std::string((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::ofstream out(folder / "model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << text << data;
}

inline std::vector<float> Expected(const Safetensors& file, const char* name, int rows, int cols) {
  const uint64_t shape[] = {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)};
  auto t = file.Get(name, shape, {"F32"});
  LS_CHECK(t.ok());
  std::vector<float> out((*t)->num_elems());
  std::memcpy(out.data(), (*t)->data, (*t)->bytes);
  return out;
}

inline Eagle3Case Read(const std::filesystem::path& path) {
  std::ifstream in(path);
  const nlohmann::json json = nlohmann::json::parse(in);
  const uint32_t seed = json.at("seed");
  Eagle3Case c;
  c.name = json.at("name");
  c.target = std::make_unique<Target>(seed, json.at("target"));
  c.num_layers = json.at("target").at("num_layers");
  c.target_hidden = json.at("target").at("hidden");
  c.vocab = json.at("target").at("vocab");
  c.hidden = json.at("config").at("hidden_size");
  const auto& draft_vocab = json.at("config").at("draft_vocab_size");
  c.draft_vocab = draft_vocab.is_null() ? c.vocab : draft_vocab.get<int>();
  c.folder = (Folder() / c.name).string();
  WriteHead(json, c.folder);

  c.num_extend = json.at("num_extend");
  c.num_chain = json.at("num_chain");
  json.at("tokens").get_to(c.tokens);
  json.at("positions").get_to(c.positions);
  json.at("parents").get_to(c.parents);
  const auto scales = json.at("tap_scales").get<std::vector<float>>();
  const Hashed hashed(seed, "taps");
  const auto ht = static_cast<size_t>(c.target_hidden);
  for (size_t i = 0; i < static_cast<size_t>(c.num_extend) * 3 * ht; ++i) {
    c.taps.push_back(hashed[i] * scales.at(i / ht % 3));
  }
  for (int parent : c.parents) {
    c.ancestors.emplace_back();
    if (parent < 0) continue;
    c.ancestors.back() = c.ancestors[static_cast<size_t>(parent)];
    c.ancestors.back().push_back(parent);
  }
  auto file = Safetensors::Open(std::filesystem::path(path).replace_extension(".safetensors").string());
  LS_CHECK(file.ok());
  c.hidden_out = Expected(**file, "hidden", c.num_rows(), c.hidden);
  c.logits = Expected(**file, "logits", c.num_rows(), c.draft_vocab);
  return c;
}

}  // namespace eagle3_case

// Every case, sorted by name. The folders are gone when the program ends.
inline std::vector<Eagle3Case> Eagle3Cases() {
  std::vector<Eagle3Case> all;
  for (const auto& entry : std::filesystem::directory_iterator(LS_SOURCE_DIR "/tests/golden/eagle3")) {
    if (entry.path().extension() == ".json") all.push_back(eagle3_case::Read(entry.path()));
  }
  std::sort(all.begin(), all.end(), [](const Eagle3Case& a, const Eagle3Case& b) { return a.name < b.name; });
  return all;
}

}  // namespace lockstep::model::testing
