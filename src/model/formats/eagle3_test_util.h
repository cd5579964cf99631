// For tests: small heads written to a folder, and a target that is only sizes and two matrices.
//
// Errors:  none: a folder that cannot be written fails the test that opens it
// Threads: one
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/ref/half.h"
#include "model/formats/weight_source.h"

namespace lockstep::model::testing {

// Sizes of the heads that HeadFolder writes.
struct HeadShape {
  uint64_t hidden = 64, target_hidden = 64, ffn = 96, heads = 4, kv_heads = 2, head_dim = 16, vocab = 96,
           draft_vocab = 32;
  uint32_t target_layers = 12;
};

class FakeTarget : public WeightSource {
 public:
  explicit FakeTarget(const HeadShape& s = {}, bool tied = true) {
    config_.arch = "llama";
    config_.num_layers = s.target_layers;
    config_.hidden = static_cast<uint32_t>(s.target_hidden);
    config_.vocab = static_cast<uint32_t>(s.vocab);
    config_.tied_embeddings = tied;
    embedding_.resize(s.vocab * s.target_hidden);
    for (size_t i = 0; i < embedding_.size(); ++i) embedding_[i] = static_cast<float>(i % 251) / 16;
    output_ = embedding_;
  }

  const ModelConfig& config() const override { return config_; }
  ModelConfig& mutable_config() { return config_; }
  std::string fingerprint() const override { return "fake"; }
  Result<TensorRef> Get(std::string_view name) const override {
    const bool output = name == "output.weight";
    if (name != "token_embd.weight" && !(output && !config_.tied_embeddings)) return NotFound("fake: no such tensor");
    const std::vector<float>& v = output ? output_ : embedding_;
    return TensorRef{
        std::string(name), DType::kF32, config_.vocab, config_.hidden, reinterpret_cast<const uint8_t*>(v.data()),
        v.size() * 4};
  }
  void Fetch(std::span<const uint8_t>) const override { ++num_fetched; }
  void Drop(std::span<const uint8_t>) const override { ++num_dropped; }

  mutable int num_fetched = 0, num_dropped = 0;

 private:
  ModelConfig config_;
  std::vector<float> embedding_, output_;
};

struct FileTensor {
  std::string name, type;
  std::vector<uint64_t> shape;
  std::string data;
};

inline uint64_t NumElems(const std::vector<uint64_t>& shape) {
  uint64_t n = 1;
  for (uint64_t dim : shape) n *= dim;
  return n;
}

// Element i of every tensor that HeadFolder makes up, by the tensor's name in the file; exact in bf16 and f16.
inline float ValueOf(const std::string& name, uint64_t i) {
  const auto seed = static_cast<uint64_t>(std::hash<std::string>()(name) % 97);
  return static_cast<float>(static_cast<int>((i * 37 + seed) % 255) - 127) / 128;
}

inline std::string FloatBytes(const std::string& type, uint64_t count, const std::function<float(uint64_t)>& value) {
  std::string out;
  for (uint64_t i = 0; i < count; ++i) {
    const float x = value(i);
    char raw[4];
    if (type == "F16") {
      const uint16_t h = kernels::ref::F32ToF16(x);
      std::memcpy(raw, &h, 2);
    } else {
      std::memcpy(raw, &x, 4);
    }
    out.append(type == "BF16" ? raw + 2 : raw, type == "F32" ? 4 : 2);
  }
  return out;
}

template <typename T>
std::string BytesOf(const std::vector<T>& v) {
  return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T));
}

// A head of the original layout, which a test changes before Write.
class HeadFolder {
 public:
  explicit HeadFolder(const HeadShape& s = {}, const std::string& type = "BF16") : shape(s), type_(type) {
    auto text = [](uint64_t x) { return std::to_string(x); };
    config = {{"architectures", R"(["LlamaForCausalLMEagle3"])"},
              {"model_type", R"("llama")"},
              {"num_hidden_layers", "1"},
              {"hidden_size", text(s.hidden)},
              {"intermediate_size", text(s.ffn)},
              {"num_attention_heads", text(s.heads)},
              {"num_key_value_heads", text(s.kv_heads)},
              {"head_dim", text(s.head_dim)},
              {"rms_norm_eps", "1e-05"},
              {"rope_theta", "10000"},
              {"rope_scaling", "null"},
              {"hidden_act", R"("silu")"},
              {"vocab_size", text(s.vocab)},
              {"draft_vocab_size", text(s.draft_vocab)},
              {"max_position_embeddings", "2048"},
              {"tie_word_embeddings", "false"},
              {"eagle_config", R"({"eagle_aux_hidden_state_layer_ids": [1, 5, 8], "use_aux_hidden_state": true})"}};
    if (s.target_hidden != s.hidden) config["target_hidden_size"] = text(s.target_hidden);
    const uint64_t h = s.hidden, q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
    std::vector<int64_t> d2t;
    std::vector<uint8_t> t2d(s.vocab, 0);
    for (uint64_t i = 0; i < s.draft_vocab; ++i) {  // every third token, from the second
      d2t.push_back(static_cast<int64_t>(3 * i + 1 - i));
      if (3 * i + 1 < s.vocab) t2d[3 * i + 1] = 1;
    }
    Put({"d2t", "I64", {s.draft_vocab}, BytesOf(d2t)});
    Put({"t2d", "BOOL", {s.vocab}, BytesOf(t2d)});
    PutFloats("fc.weight", {h, 3 * s.target_hidden});
    PutFloats("lm_head.weight", {s.draft_vocab, h});
    PutFloats("midlayer.hidden_norm.weight", {h});
    PutFloats("midlayer.input_layernorm.weight", {h});
    PutFloats("midlayer.mlp.down_proj.weight", {h, s.ffn});
    PutFloats("midlayer.mlp.gate_proj.weight", {s.ffn, h});
    PutFloats("midlayer.mlp.up_proj.weight", {s.ffn, h});
    PutFloats("midlayer.post_attention_layernorm.weight", {h});
    PutFloats("midlayer.self_attn.k_proj.weight", {kv, 2 * h});
    PutFloats("midlayer.self_attn.o_proj.weight", {h, q});
    PutFloats("midlayer.self_attn.q_proj.weight", {q, 2 * h});
    PutFloats("midlayer.self_attn.v_proj.weight", {kv, 2 * h});
    PutFloats("norm.weight", {h});
  }
  ~HeadFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  HeadFolder(const HeadFolder&) = delete;
  HeadFolder& operator=(const HeadFolder&) = delete;

  void Put(FileTensor t) {
    Remove(t.name);
    tensors.push_back(std::move(t));
  }
  void PutFloats(const std::string& name, std::vector<uint64_t> dims) {
    const uint64_t n = NumElems(dims);
    Put({name, type_, std::move(dims), FloatBytes(type_, n, [&](uint64_t i) { return ValueOf(name, i); })});
  }
  void Remove(const std::string& name) {
    std::erase_if(tensors, [&](const FileTensor& t) { return t.name == name; });
  }
  // Renames the tensors; the values stay those of the old names.
  void Rename(const std::function<std::string(const std::string&)>& name) {
    for (FileTensor& t : tensors) t.name = name(t.name);
  }

  // The folder's path. With more files than one, the tensors are dealt out in turn and an index is written. `pad` spaces
  // stand behind the header: at any but 8 the data is not aligned.
  std::string Write(int num_files = 1, int pad = 0) {
    static int counter = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("lockstep-head-" + std::to_string(getpid()) + "-" + std::to_string(counter++));
    std::filesystem::create_directories(path_);
    std::string text;
    for (const auto& [key, value] : config) text += (text.empty() ? "{\"" : ",\n \"") + key + "\": " + value;
    std::ofstream(path_ / "config.json") << text << "}\n";
    std::string map;
    for (int f = 0; f < num_files; ++f) {
      const std::string of = std::to_string(num_files);
      const std::string name =
          num_files == 1 ? "model.safetensors" : "model-" + std::to_string(f + 1) + "-of-" + of + ".safetensors";
      std::string header, data;
      for (size_t i = static_cast<size_t>(f); i < tensors.size(); i += static_cast<size_t>(num_files)) {
        const FileTensor& t = tensors[i];
        std::string shape_text;
        for (uint64_t dim : t.shape) shape_text += (shape_text.empty() ? "" : ",") + std::to_string(dim);
        header += (header.empty() ? "{\"" : ",\"") + t.name + "\":{\"dtype\":\"" + t.type + "\",\"shape\":[" +
                  shape_text + "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
                  std::to_string(data.size() + t.data.size()) + "]}";
        data += t.data;
        map += (map.empty() ? "\"" : ",\"") + t.name + "\":\"" + name + "\"";
      }
      header += "}";
      header += std::string((8 - header.size() % 8) % 8 + static_cast<size_t>(pad), ' ');
      const uint64_t length = header.size();
      std::ofstream out(path_ / name, std::ios::binary);
      out.write(reinterpret_cast<const char*>(&length), sizeof length);
      out << header << data;
    }
    if (num_files > 1) std::ofstream(path_ / "model.safetensors.index.json") << "{\"weight_map\":{" << map << "}}";
    return path_.string();
  }

  HeadShape shape;
  std::map<std::string, std::string> config;  // key -> JSON
  std::vector<FileTensor> tensors;

 private:
  std::string type_;
  std::filesystem::path path_;
};

}  // namespace lockstep::model::testing
