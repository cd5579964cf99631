#include "model/inspect.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/formats/gguf.h"
#include "model/formats/safetensors.h"

namespace lockstep::model {
namespace {

using Json = nlohmann::ordered_json;

const char* ScalingName(RopeScaling s) {
  switch (s) {
    case RopeScaling::kNone:
      return "none";
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kFreqFactors:
      return "freq_factors";
  }
  return "?";
}

Json ConfigJson(const ModelConfig& c) {
  return {{"name", c.name},
          {"num_layers", c.num_layers},
          {"hidden", c.hidden},
          {"ffn", c.ffn},
          {"num_heads", c.num_heads},
          {"num_kv_heads", c.num_kv_heads},
          {"head_dim", c.head_dim},
          {"vocab", c.vocab},
          {"context_length", c.context_length},
          {"rms_norm_eps", c.rms_norm_eps},
          {"rope_theta", c.rope_theta},
          {"rope_scaling", ScalingName(c.rope_scaling)},
          {"rope_factor", c.rope_factor},
          {"rope_interleaved", c.rope_interleaved},
          {"tied_embeddings", c.tied_embeddings},
          {"qkv_bias", c.qkv_bias},
          {"qk_norm", c.qk_norm}};
}

// null if the key is absent or no string.
Json StringOrNull(const GgufFile& file, const char* key) {
  auto text = file.GetString(key);
  return text.ok() ? Json(*text) : Json(nullptr);
}

bool IsSafetensors(const std::string& path) {
  std::error_code ignored;
  return path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json") ||
         std::filesystem::is_directory(path, ignored);
}

}  // namespace

std::string HumanBytes(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double x = static_cast<double>(bytes);
  int unit = 0;
  for (; x >= 1024 && unit < 4; ++unit) x /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", x, units[unit]);
}

std::string InspectJson(const GgufFile& file, const InspectOptions& options) {
  Json out;
  out["path"] = file.path();
  out["format"] = "gguf";
  out["version"] = file.version();
  out["parts"] = file.num_parts();
  out["arch"] = StringOrNull(file, "general.architecture");
  auto config = ConfigFromGguf(file);
  out["config"] = config.ok() ? ConfigJson(*config) : Json(nullptr);
  if (!config.ok()) out["config_error"] = config.status().message();
  Json tensors = Json::array();
  for (const GgufTensor& t : file.tensors()) {
    tensors.push_back({{"name", t.name}, {"type", t.type->name}, {"shape", t.shape}, {"bytes", t.bytes}});
  }
  out["tensors"] = std::move(tensors);
  out["tokenizer"] = {{"model", StringOrNull(file, "tokenizer.ggml.model")},
                      {"pre", StringOrNull(file, "tokenizer.ggml.pre")},
                      {"vocab", file.NumElems("tokenizer.ggml.tokens")}};
  out["shards"] = nullptr;
  out["kv_bytes_per_token"] = nullptr;
  if (config.ok()) {
    out["kv_bytes_per_token"] = KvBytesPerToken(*config, options.kv_elem_bytes);
    out["fingerprint"] = Fingerprint(file, *config);
    if (options.shards_json) {
      Json shards = Json::parse(options.shards_json(*config), nullptr, /*allow_exceptions=*/false);
      if (!shards.is_discarded()) out["shards"] = std::move(shards);
    }
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string InspectText(const GgufFile& file, const InspectOptions& options) {
  auto text = [&](const char* key) {
    auto value = file.GetString(key);
    return value.ok() ? GgufFile::Shown(*value) : std::string("-");
  };
  std::string out = fmt::format("file       {}\nformat     GGUF v{}{}\narch       {}\nname       {}\n", file.path(),
                                file.version(), file.num_parts() > 1 ? fmt::format(", {} parts", file.num_parts()) : "",
                                text("general.architecture"), text("general.name"));
  auto config = ConfigFromGguf(file);
  if (config.ok()) {
    const ModelConfig& c = *config;
    out += fmt::format(
        "sizes      {} layers, D {}, F {}, H {}, K {}, Dh {}, V {}, context {}\n"
        "numbers    norm eps {}, rope theta {}, scaling {}{}\n"
        "head       {}\nkv         {} a token ({} bytes an element)\nprint      {}\n",
        c.num_layers, c.hidden, c.ffn, c.num_heads, c.num_kv_heads, c.head_dim, c.vocab, c.context_length,
        c.rms_norm_eps, c.rope_theta, ScalingName(c.rope_scaling),
        c.rope_scaling == RopeScaling::kLinear ? fmt::format(" {}", c.rope_factor) : "",
        c.tied_embeddings ? "the embedding (tied)" : "output.weight",
        HumanBytes(KvBytesPerToken(c, options.kv_elem_bytes)), options.kv_elem_bytes, Fingerprint(file, c));
  } else {
    out += fmt::format("config     none: {}\n", config.status().message());
  }
  out += fmt::format("tokenizer  {}, pre {}, {} tokens\n", text("tokenizer.ggml.model"), text("tokenizer.ggml.pre"),
                     file.NumElems("tokenizer.ggml.tokens"));
  uint64_t total_bytes = 0;
  for (const GgufTensor& t : file.tensors()) total_bytes += t.bytes;
  out += fmt::format("tensors    {}, {}\n", file.tensors().size(), HumanBytes(total_bytes));
  for (const GgufTensor& t : file.tensors()) {
    out += fmt::format("  {:<40} {:<8} {:<20} {}\n", GgufFile::Shown(t.name), t.type->name,
                       fmt::format("[{}]", fmt::join(t.shape, ", ")), HumanBytes(t.bytes));
  }
  return out;
}

Result<std::string> InspectJson(const std::string& path, const InspectOptions& options) {
  if (IsSafetensors(path)) {
    LS_ASSIGN_OR_RETURN(auto files, Safetensors::Open(path));
    return InspectJson(*files);
  }
  LS_ASSIGN_OR_RETURN(auto file, GgufFile::Open(path, GgufMode::kInspect));
  return InspectJson(*file, options);
}

Result<std::string> InspectText(const std::string& path, const InspectOptions& options) {
  if (IsSafetensors(path)) {
    LS_ASSIGN_OR_RETURN(auto files, Safetensors::Open(path));
    return InspectText(*files);
  }
  LS_ASSIGN_OR_RETURN(auto file, GgufFile::Open(path, GgufMode::kInspect));
  return InspectText(*file, options);
}

}  // namespace lockstep::model
