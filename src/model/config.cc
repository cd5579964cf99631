#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/config_limits.h"
#include "model/formats/gguf.h"
#include "model/registry.h"

namespace lockstep::model {
namespace {

// Reads the keys of one architecture with their ranges.
class KeyReader {
 public:
  KeyReader(const GgufFile& file, const std::string& arch) : file_(file), arch_(arch) {}

  std::string Key(const char* suffix) const { return arch_ + "." + suffix; }
  bool Has(const char* suffix) const { return file_.Has(Key(suffix)); }
  Status Bad(const char* suffix, const std::string& text) const {
    return CorruptFile(fmt::format("{}: key {}: {}", file_.path(), Key(suffix), text));
  }

  // A count in [1, max]. Some writers store one value a layer; equal values are one value.
  Status Count(const char* suffix, uint64_t max, uint32_t* out) const {
    std::string key = Key(suffix);
    uint64_t x = 0;
    if (file_.NumElems(key) > 0) {
      LS_ASSIGN_OR_RETURN(std::vector<int32_t> per_layer, file_.GetInts(key));
      if (std::any_of(per_layer.begin(), per_layer.end(), [&](int32_t v) { return v != per_layer[0]; })) {
        return Unsupported(fmt::format("{}: key {}: differs between layers", file_.path(), key));
      }
      if (per_layer[0] < 1) return Bad(suffix, fmt::format("{} is not in 1 to {}", per_layer[0], max));
      x = static_cast<uint64_t>(per_layer[0]);
    } else {
      LS_ASSIGN_OR_RETURN(x, file_.GetUint(key));
    }
    if (x < 1 || x > max) return Bad(suffix, fmt::format("{} is not in 1 to {}", x, max));
    *out = static_cast<uint32_t>(x);
    return OkStatus();
  }
  Status OptionalCount(const char* suffix, uint64_t max, uint32_t* out) const {
    return Has(suffix) ? Count(suffix, max, out) : OkStatus();
  }
  // A number in (0, max]; NaN fails too.
  Status Positive(const char* suffix, double max, double* out) const {
    LS_ASSIGN_OR_RETURN(double x, file_.GetFloat(Key(suffix)));
    if (!(x > 0 && x <= max)) return Bad(suffix, fmt::format("{} is not in (0, {}]", x, max));
    *out = x;
    return OkStatus();
  }

 private:
  const GgufFile& file_;
  const std::string& arch_;
};

Status ReadHeads(const GgufFile& file, const KeyReader& keys, ModelConfig* c) {
  LS_RETURN_IF_ERROR(keys.Count("attention.head_count", kMaxHeads, &c->num_heads));
  c->num_kv_heads = c->num_heads;
  LS_RETURN_IF_ERROR(keys.OptionalCount("attention.head_count_kv", kMaxHeads, &c->num_kv_heads));
  if (c->num_heads % c->num_kv_heads != 0) {
    return keys.Bad("attention.head_count_kv",
                    fmt::format("{} does not divide {} heads", c->num_kv_heads, c->num_heads));
  }
  if (keys.Has("attention.key_length")) {
    LS_RETURN_IF_ERROR(keys.Count("attention.key_length", kMaxHeadDim, &c->head_dim));
  } else {
    if (c->hidden % c->num_heads != 0) {
      return keys.Bad("attention.head_count",
                      fmt::format("{} does not divide embedding_length {}", c->num_heads, c->hidden));
    }
    c->head_dim = c->hidden / c->num_heads;
  }
  if (c->head_dim % 2 != 0 || c->head_dim > kMaxHeadDim) {
    return keys.Bad(keys.Has("attention.key_length") ? "attention.key_length" : "attention.head_count",
                    fmt::format("head dimension {} is not even and at most {}", c->head_dim, kMaxHeadDim));
  }
  uint32_t value_dim = c->head_dim, rope_dims = c->head_dim;
  LS_RETURN_IF_ERROR(keys.OptionalCount("attention.value_length", kMaxHeadDim, &value_dim));
  LS_RETURN_IF_ERROR(keys.OptionalCount("rope.dimension_count", kMaxHeadDim, &rope_dims));
  if (value_dim != c->head_dim || rope_dims != c->head_dim) {
    return Unsupported(
        fmt::format("{}: key {}: {} differs from the head dimension {}", file.path(),
                    keys.Key(value_dim != c->head_dim ? "attention.value_length" : "rope.dimension_count"),
                    value_dim != c->head_dim ? value_dim : rope_dims, c->head_dim));
  }
  return OkStatus();
}

// rope_freqs.weight: [Dh / 2] divisors of the frequencies, as the converters write it for Llama 3.
Status ReadFreqFactors(const GgufFile& file, const GgufTensor& t, ModelConfig* c) {
  if (t.type->dtype != DType::kF32 || t.shape != std::vector<uint64_t>{c->head_dim / 2}) {
    return CorruptFile(fmt::format("{}: tensor {}: {} [{}], F32 [{}] expected", file.path(), t.name, t.type->name,
                                   fmt::join(t.shape, ", "), c->head_dim / 2));
  }
  if (c->rope_scaling != RopeScaling::kNone) {
    return Unsupported(fmt::format("{}: tensor {}: beside linear rope scaling", file.path(), t.name));
  }
  c->rope_scaling = RopeScaling::kFreqFactors;
  c->rope_freq_factors.resize(c->head_dim / 2);
  std::memcpy(c->rope_freq_factors.data(), t.data, t.bytes);
  for (size_t i = 0; i < c->rope_freq_factors.size(); ++i) {
    float f = c->rope_freq_factors[i];
    if (!(f > 0 && std::isfinite(f))) {
      return CorruptFile(fmt::format("{}: tensor {}: element {} is {}", file.path(), t.name, i, f));
    }
  }
  return OkStatus();
}

Status ReadRope(const GgufFile& file, const KeyReader& keys, ModelConfig* c) {
  if (keys.Has("rope.freq_base")) LS_RETURN_IF_ERROR(keys.Positive("rope.freq_base", 1e12, &c->rope_theta));
  std::string type = "linear";  // what a factor without a type means
  if (keys.Has("rope.scaling.type")) {
    LS_ASSIGN_OR_RETURN(type, file.GetString(keys.Key("rope.scaling.type")));
  }
  if (type != "linear" && type != "none") {
    return Unsupported(fmt::format("{}: key {}: {} (none and linear are built)", file.path(),
                                   keys.Key("rope.scaling.type"), GgufFile::Shown(type)));
  }
  if (type == "linear") {
    for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
      if (!keys.Has(key)) continue;
      LS_RETURN_IF_ERROR(keys.Positive(key, 1e6, &c->rope_factor));
      if (c->rope_factor != 1) c->rope_scaling = RopeScaling::kLinear;
      break;
    }
  }
  if (const GgufTensor* t = file.Find("rope_freqs.weight")) return ReadFreqFactors(file, *t, c);
  return OkStatus();
}

Status ReadVocab(const GgufFile& file, const KeyReader& keys, ModelConfig* c) {
  uint64_t num_tokens = file.NumElems("tokenizer.ggml.tokens");
  uint64_t vocab = num_tokens;
  const char* source = "tokenizer.ggml.tokens";
  if (keys.Has("vocab_size")) {
    uint32_t stated = 0;
    LS_RETURN_IF_ERROR(keys.Count("vocab_size", kMaxVocab, &stated));
    vocab = stated;
  } else if (vocab == 0) {
    const GgufTensor* embedding = file.Find("token_embd.weight");
    if (!embedding) return NotFound(fmt::format("{}: key {}: missing", file.path(), keys.Key("vocab_size")));
    vocab = embedding->shape[0];
    source = "token_embd.weight";
  }
  if (vocab < 1 || vocab > kMaxVocab) {
    return CorruptFile(
        fmt::format("{}: {}: vocabulary of {} is not in 1 to {}", file.path(), source, vocab, kMaxVocab));
  }
  if (num_tokens > vocab) {
    return CorruptFile(fmt::format("{}: key tokenizer.ggml.tokens: {} tokens, but {} is {}", file.path(), num_tokens,
                                   keys.Key("vocab_size"), vocab));
  }
  c->vocab = static_cast<uint32_t>(vocab);
  return OkStatus();
}

}  // namespace

Result<ModelConfig> ConfigFromGguf(const GgufFile& file) {
  ModelConfig c;
  LS_ASSIGN_OR_RETURN(c.arch, file.GetString("general.architecture"));
  if (FindArchitecture(c.arch) == nullptr) {
    return Unsupported(fmt::format("{}: key general.architecture: {} is not built (built: {})", file.path(),
                                   GgufFile::Shown(c.arch), BuiltArchitectures()));
  }
  if (file.Has("general.name")) {
    LS_ASSIGN_OR_RETURN(c.name, file.GetString("general.name"));
  }
  KeyReader keys(file, c.arch);
  if (keys.Has("expert_count")) {
    LS_ASSIGN_OR_RETURN(uint64_t experts, file.GetUint(keys.Key("expert_count")));
    if (experts > 0) {
      return Unsupported(fmt::format("{}: key {}: {} experts; mixtures are not built for {}", file.path(),
                                     keys.Key("expert_count"), experts, c.arch));
    }
  }
  LS_RETURN_IF_ERROR(keys.Count("block_count", kMaxLayers, &c.num_layers));
  LS_RETURN_IF_ERROR(keys.Count("context_length", kMaxContext, &c.context_length));
  LS_RETURN_IF_ERROR(keys.Count("embedding_length", kMaxHidden, &c.hidden));
  LS_RETURN_IF_ERROR(keys.Count("feed_forward_length", kMaxFfn, &c.ffn));
  LS_RETURN_IF_ERROR(ReadHeads(file, keys, &c));
  double eps = 0;
  LS_RETURN_IF_ERROR(keys.Positive("attention.layer_norm_rms_epsilon", 0.1, &eps));
  c.rms_norm_eps = static_cast<float>(eps);
  if (!(c.rms_norm_eps > 0)) {  // an f64 too small for a float
    return keys.Bad("attention.layer_norm_rms_epsilon", fmt::format("{} is 0 as a float", eps));
  }
  LS_RETURN_IF_ERROR(ReadRope(file, keys, &c));
  LS_RETURN_IF_ERROR(ReadVocab(file, keys, &c));
  c.rope_interleaved = c.arch == "llama";  // whose Wq and Wk converters permute to adjacent pairs
  c.qkv_bias = c.arch == "qwen2";
  c.qk_norm = c.arch == "qwen3";
  c.tied_embeddings = file.Find("output.weight") == nullptr;
  return c;
}

}  // namespace lockstep::model
