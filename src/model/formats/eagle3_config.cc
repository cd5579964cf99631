#include "model/formats/eagle3_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numbers>

#include "kernels/ref/elementary64.h"
#include "model/config_limits.h"
#include "model/formats/gguf.h"

namespace lockstep::model {
namespace {

constexpr size_t kNumTaps = 3;
constexpr const char* kLayerIds = "eagle_aux_hidden_state_layer_ids";

// Reads the keys of one config.json.
class HeadKeys {
 public:
  explicit HeadKeys(const JsonConfig& json) : json_(json) {}

  const JsonConfig& json() const { return json_; }

  Status Bad(const std::string& key, const std::string& text) const { return CorruptFile(Text(key, text)); }
  Status NotBuilt(const std::string& key, const std::string& text) const { return Unsupported(Text(key, text)); }
  Status OtherTarget(const std::string& key, const std::string& text) const { return InvalidArgument(Text(key, text)); }

  // Where a key of eagle_config stands; empty if nowhere.
  std::string Place(const std::string& key) const {
    const std::string nested = "eagle_config/" + key;
    return json_.Has(nested) ? nested : json_.Has(key) ? key : "";
  }
  // A key of eagle_config that is true or false, `fallback` if absent.
  Status Flag(const std::string& key, bool fallback, bool* out) const {
    const std::string place = Place(key);
    *out = fallback;
    if (place.empty()) return OkStatus();
    LS_ASSIGN_OR_RETURN(*out, json_.GetBool(place));
    if (place == key || !json_.Has(key)) return OkStatus();
    LS_ASSIGN_OR_RETURN(bool top, json_.GetBool(key));
    return top == *out ? OkStatus() : Bad(place, fmt::format("is {}, but {} is {}", *out, key, top));
  }
  // A count in [1, max], `fallback` if absent; no fallback: the key must be there.
  Status Count(const std::string& key, uint64_t max, uint32_t fallback, uint32_t* out) const {
    *out = fallback;
    if (fallback > 0 && !json_.Has(key)) return OkStatus();
    LS_ASSIGN_OR_RETURN(uint64_t x, json_.GetUint(key, 1, max));
    *out = static_cast<uint32_t>(x);
    return OkStatus();
  }
  Status Positive(const std::string& key, double max, double fallback, double* out) const {
    *out = fallback;
    if (!json_.Has(key)) return OkStatus();
    LS_ASSIGN_OR_RETURN(*out, json_.GetPositive(key, max));
    return OkStatus();
  }

 private:
  std::string Text(const std::string& key, const std::string& text) const {
    return fmt::format("{}: key {}: {}", json_.path(), key, text);
  }

  const JsonConfig& json_;
};

// Variants that other engines run and this one does not: without this they would load, and draft nonsense.
Status CheckVariant(const HeadKeys& keys) {
  const JsonConfig& json = keys.json();
  for (const char* key : {"speculators_model_type", "transformer_layer_config"}) {
    if (json.Has(key)) {
      return keys.NotBuilt(key, "a config of the speculators library; the head's original folder is read");
    }
  }
  if (json.Has("quantization_config")) {
    return keys.NotBuilt("quantization_config", "quantised heads are not read; F32, F16 and BF16 are");
  }
  uint32_t layers = 1;
  LS_RETURN_IF_ERROR(keys.Count("num_hidden_layers", kMaxLayers, 1, &layers));
  if (layers != 1) return keys.NotBuilt("num_hidden_layers", fmt::format("{}; an EAGLE-3 head has 1", layers));
  struct Needed {
    const char *key, *why;
    bool value;
  };
  for (const Needed& n : {Needed{"use_aux_hidden_state", "a head without taps is not EAGLE-3", true},
                          Needed{"norm_before_residual", "the residual here is the hidden before its norm", false},
                          Needed{"eh_proj_before_attn", "attention here reads embedding and hidden as they are", false},
                          Needed{"use_input_layernorm_in_first_layer", "the embedding has a norm here", true},
                          Needed{"use_last_layernorm", "the output has a norm here", true},
                          Needed{"use_mtp_layernorm", "a multi-token head is not EAGLE-3", false}}) {
    bool value = n.value;
    LS_RETURN_IF_ERROR(keys.Flag(n.key, n.value, &value));
    if (value != n.value) return keys.NotBuilt(keys.Place(n.key), fmt::format("{}: {}", value, n.why));
  }
  const std::string step = keys.Place("parallel_draft_step");
  if (!step.empty()) {
    LS_ASSIGN_OR_RETURN(uint64_t steps, json.GetUint(step, 0, 1 << 20));
    if (steps > 1) return keys.NotBuilt(step, fmt::format("{}; a head here drafts one token at a time", steps));
  }
  if (json.Has("hidden_act")) {
    LS_ASSIGN_OR_RETURN(std::string act, json.GetString("hidden_act"));
    if (act != "silu") return keys.NotBuilt("hidden_act", fmt::format("{} (silu is built)", GgufFile::Shown(act)));
  }
  for (const char* key : {"partial_rotary_factor", "logit_scale"}) {
    double x = 1;
    LS_RETURN_IF_ERROR(keys.Positive(key, 1e6, 1, &x));
    if (x != 1) return keys.NotBuilt(key, fmt::format("{} (1 is built)", x));
  }
  bool window = false;
  if (json.Has("use_sliding_window")) {
    LS_ASSIGN_OR_RETURN(window, json.GetBool("use_sliding_window"));
  }
  if (window) return keys.NotBuilt("use_sliding_window", "true; attention over all positions is built");
  if (json.Has("layer_types")) {
    LS_ASSIGN_OR_RETURN(auto types, json.GetStrings("layer_types"));
    for (const std::string& type : types) {
      if (type == "full_attention") continue;
      return keys.NotBuilt("layer_types", fmt::format("{} (full_attention is built)", GgufFile::Shown(type)));
    }
  }
  return OkStatus();
}

Status ReadHeads(const HeadKeys& keys, ModelConfig* c) {
  LS_RETURN_IF_ERROR(keys.Count("num_attention_heads", kMaxHeads, 0, &c->num_heads));
  LS_RETURN_IF_ERROR(keys.Count("num_key_value_heads", kMaxHeads, c->num_heads, &c->num_kv_heads));
  if (c->num_heads % c->num_kv_heads != 0) {
    return keys.Bad("num_key_value_heads", fmt::format("{} does not divide {} heads", c->num_kv_heads, c->num_heads));
  }
  const bool stated = keys.json().Has("head_dim");
  if (!stated && c->hidden % c->num_heads != 0) {
    return keys.Bad("num_attention_heads", fmt::format("{} does not divide hidden_size {}", c->num_heads, c->hidden));
  }
  LS_RETURN_IF_ERROR(keys.Count("head_dim", kMaxHeadDim, c->hidden / c->num_heads, &c->head_dim));
  if (c->head_dim % 2 != 0 || c->head_dim > kMaxHeadDim) {
    return keys.Bad(stated ? "head_dim" : "num_attention_heads",
                    fmt::format("head dimension {} is not even and at most {}", c->head_dim, kMaxHeadDim));
  }
  return OkStatus();
}

// Llama 3's scaling as divisors of the frequencies: long waves are divided by `factor`, short ones by 1, those between
// by a blend.
Status ReadLlama3(const HeadKeys& keys, const std::string& group, ModelConfig* c) {
  double factor = 0, low = 0, high = 0;
  LS_ASSIGN_OR_RETURN(factor, keys.json().GetPositive(group + "/factor", 1e6));
  LS_ASSIGN_OR_RETURN(low, keys.json().GetPositive(group + "/low_freq_factor", 1e6));
  LS_ASSIGN_OR_RETURN(high, keys.json().GetPositive(group + "/high_freq_factor", 1e6));
  LS_ASSIGN_OR_RETURN(double trained,
                      keys.json().GetPositive(group + "/original_max_position_embeddings", double{kMaxContext}));
  if (high <= low) {
    return keys.Bad(group + "/high_freq_factor", fmt::format("{} is not above low_freq_factor {}", high, low));
  }
  c->rope_scaling = RopeScaling::kFreqFactors;
  c->rope_freq_factors.resize(c->head_dim / 2);
  const double log_theta = kernels::ref::Log64(c->rope_theta);
  for (size_t i = 0; i < c->rope_freq_factors.size(); ++i) {
    const double wave =
        2 * std::numbers::pi * kernels::ref::Exp64(log_theta * (2.0 * static_cast<double>(i) / c->head_dim));
    const double blend = std::clamp((trained / wave - low) / (high - low), 0.0, 1.0);
    c->rope_freq_factors[i] = static_cast<float>(1 / ((1 - blend) / factor + blend));
  }
  return OkStatus();
}

// rope_scaling, or what transformers 5 writes instead: rope_parameters with rope_theta in it.
Status ReadRope(const HeadKeys& keys, ModelConfig* c) {
  const JsonConfig& json = keys.json();
  const std::string group = json.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const char* theta = json.Has("rope_parameters/rope_theta") ? "rope_parameters/rope_theta" : "rope_theta";
  LS_RETURN_IF_ERROR(keys.Positive(theta, 1e12, 10000, &c->rope_theta));
  if (c->rope_theta < 1) return keys.Bad(theta, fmt::format("{} is less than 1", c->rope_theta));
  if (!json.Has(group)) return OkStatus();
  const std::string type_key = group + (json.Has(group + "/rope_type") ? "/rope_type" : "/type");
  std::string type = "default";
  if (json.Has(type_key)) {
    LS_ASSIGN_OR_RETURN(type, json.GetString(type_key));
  } else if (json.Has(group + "/factor")) {
    return keys.Bad(group, "a factor without rope_type");
  }
  if (type == "default") return OkStatus();
  if (type == "llama3") return ReadLlama3(keys, group, c);
  if (type != "linear") {
    return keys.NotBuilt(type_key, fmt::format("{} (default, linear and llama3 are built)", GgufFile::Shown(type)));
  }
  LS_ASSIGN_OR_RETURN(c->rope_factor, json.GetPositive(group + "/factor", 1e6));
  if (c->rope_factor != 1) c->rope_scaling = RopeScaling::kLinear;
  return OkStatus();
}

Status ReadTaps(const HeadKeys& keys, const ModelConfig* target, Eagle3Config* c) {
  const JsonConfig& json = keys.json();
  const std::string number = keys.Place("num_aux_hidden_states");
  if (!number.empty()) {
    LS_ASSIGN_OR_RETURN(uint64_t n, json.GetUint(number, 0, kMaxLayers));
    if (n != kNumTaps) return keys.NotBuilt(number, fmt::format("{} ({} taps are built)", n, kNumTaps));
  }
  const uint32_t depth = target == nullptr ? 0 : target->num_layers;
  const std::string place = keys.Place(kLayerIds);
  std::vector<uint64_t> ids;
  if (!place.empty()) {
    LS_ASSIGN_OR_RETURN(ids, json.GetUints(place, 0, kMaxLayers, kMaxLayers));
  }
  if (ids.empty()) {  // ModelOpt writes an empty list for the usual ones
    if (target == nullptr) return OkStatus();
    if (depth < 7) {
      return NotFound(fmt::format("{}: key {}: missing, and a target of {} layers is too shallow for the usual taps",
                                  json.path(), kLayerIds, depth));
    }
    c->tap_layers = {1, static_cast<int>(depth / 2) - 1, static_cast<int>(depth) - 4};
    return OkStatus();
  }
  if (place != kLayerIds && json.Has(kLayerIds)) {
    LS_ASSIGN_OR_RETURN(auto top, json.GetUints(kLayerIds, 0, kMaxLayers, kMaxLayers));
    if (top != ids) {
      return keys.Bad(place,
                      fmt::format("[{}], but {} is [{}]", fmt::join(ids, ", "), kLayerIds, fmt::join(top, ", ")));
    }
  }
  if (ids.size() != kNumTaps) {
    return keys.NotBuilt(place, fmt::format("[{}] ({} taps are built)", fmt::join(ids, ", "), kNumTaps));
  }
  LS_ASSIGN_OR_RETURN(c->tap_layers, TapLayersFromIds(fmt::format("{}: key {}", json.path(), place), ids, depth));
  return OkStatus();
}

// Hidden sizes and vocabularies of head and target.
Status ReadWidths(const HeadKeys& keys, const ModelConfig* target, ModelConfig* c) {
  LS_RETURN_IF_ERROR(keys.Count("hidden_size", kMaxHidden, 0, &c->hidden));
  LS_RETURN_IF_ERROR(keys.Count("intermediate_size", kMaxFfn, 0, &c->ffn));
  const std::string place = keys.Place("target_hidden_size");
  LS_RETURN_IF_ERROR(
      keys.Count(place.empty() ? "target_hidden_size" : place, kMaxHidden, c->hidden, &c->eagle3.target_hidden));
  uint32_t vocab = 0;
  LS_RETURN_IF_ERROR(keys.Count("vocab_size", kMaxVocab, 0, &vocab));
  LS_RETURN_IF_ERROR(keys.Count("draft_vocab_size", kMaxVocab, vocab, &c->vocab));
  if (c->vocab > vocab) {
    return keys.Bad("draft_vocab_size", fmt::format("{} is more than vocab_size {}", c->vocab, vocab));
  }
  if (target == nullptr) return OkStatus();
  if (c->eagle3.target_hidden != target->hidden) {
    return keys.OtherTarget(place.empty() ? "hidden_size" : place,
                            fmt::format("the head is for a hidden size of {}, the target's is {}",
                                        c->eagle3.target_hidden, target->hidden));
  }
  if (vocab != target->vocab) {
    return keys.OtherTarget(
        "vocab_size", fmt::format("the head is for a vocabulary of {}, the target's is {}", vocab, target->vocab));
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<int>> TapLayersFromIds(const std::string& where, const std::vector<uint64_t>& ids,
                                          uint32_t num_layers) {
  const bool are_outputs = !ids.empty() && ids[0] == 1;
  const uint64_t min = are_outputs ? 0 : 1;
  const uint64_t max = num_layers == 0 ? kMaxLayers : num_layers - 1 + min;
  std::vector<int> layers;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < min || ids[i] > max) {
      return CorruptFile(fmt::format("{}: {} in [{}] is not in {} to {} ({} of a target's layers{})", where, ids[i],
                                     fmt::join(ids, ", "), min, max, are_outputs ? "outputs" : "boundaries",
                                     num_layers == 0 ? "" : fmt::format("; it has {}", num_layers)));
    }
    if (std::find(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(i), ids[i]) !=
        ids.begin() + static_cast<ptrdiff_t>(i)) {
      return CorruptFile(fmt::format("{}: {} twice in [{}]", where, ids[i], fmt::join(ids, ", ")));
    }
    layers.push_back(static_cast<int>(ids[i] - min));
  }
  return layers;
}

Result<ModelConfig> Eagle3ConfigFromJson(const JsonConfig& json, const ModelConfig* target) {
  const HeadKeys keys(json);
  LS_RETURN_IF_ERROR(CheckVariant(keys));
  ModelConfig c;
  c.arch = "eagle3";
  c.name = std::filesystem::path(json.path()).parent_path().filename().string();
  c.num_layers = 1;
  LS_RETURN_IF_ERROR(ReadWidths(keys, target, &c));
  LS_RETURN_IF_ERROR(ReadHeads(keys, &c));
  LS_RETURN_IF_ERROR(keys.Count("max_position_embeddings", kMaxContext, 2048, &c.context_length));
  double eps = 0;
  LS_RETURN_IF_ERROR(keys.Positive("rms_norm_eps", 0.1, 1e-6, &eps));
  c.rms_norm_eps = static_cast<float>(eps);
  if (!(c.rms_norm_eps > 0)) return keys.Bad("rms_norm_eps", fmt::format("{} is 0 as a float", eps));
  LS_RETURN_IF_ERROR(ReadRope(keys, &c));
  LS_RETURN_IF_ERROR(ReadTaps(keys, target, &c.eagle3));
  bool older_name = false, post_norm = false;
  LS_RETURN_IF_ERROR(keys.Flag("fc_norm", false, &c.eagle3.fc_norm));
  LS_RETURN_IF_ERROR(keys.Flag("use_aux_norm", false, &older_name));
  LS_RETURN_IF_ERROR(keys.Flag("norm_before_fc", false, &c.eagle3.norm_before_fc));
  LS_RETURN_IF_ERROR(keys.Flag("norm_output", false, &c.eagle3.norm_output));
  LS_RETURN_IF_ERROR(keys.Flag("return_hidden_post_norm", false, &post_norm));
  c.eagle3.fc_norm |= older_name;
  c.eagle3.norm_output |= post_norm;
  if (json.Has("tie_word_embeddings")) {
    LS_ASSIGN_OR_RETURN(c.tied_embeddings, json.GetBool("tie_word_embeddings"));
  }
  return c;
}

}  // namespace lockstep::model
