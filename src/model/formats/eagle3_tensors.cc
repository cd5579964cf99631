#include "model/formats/eagle3_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/formats/gguf.h"

namespace lockstep::model {
namespace {

struct Name {
  std::string_view in_file, here;
};

// Behind midlayer. or layers.0.; here behind blk.0.
constexpr Name kLayerNames[] = {
    {"input_layernorm.weight", "embd_norm.weight"},    {"hidden_norm.weight", "hidden_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},      {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},      {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},          {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.o_proj.weight", "attn_output.weight"}, {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},       {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
};
constexpr Name kOtherNames[] = {
    {"fc.weight", "fc.weight"},
    {"fc.bias", "fc.bias"},
    {"fc_norm.0.weight", "fc_norm.0.weight"},
    {"fc_norm.1.weight", "fc_norm.1.weight"},
    {"fc_norm.2.weight", "fc_norm.2.weight"},
    {"input_norm.weight", "fc_input_norm.weight"},
    {"norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"embed_tokens.weight", "token_embd.weight"},
    {"d2t", "d2t"},
    {"t2d", "t2d"},
};

bool Strip(std::string_view prefix, std::string_view* name) {
  if (!name->starts_with(prefix)) return false;
  name->remove_prefix(prefix.size());
  return true;
}

// The name here; empty if no head has such a tensor.
std::string NameHere(std::string_view in_file) {
  Strip("model.", &in_file);
  const bool in_layer = Strip("midlayer.", &in_file) || Strip("layers.0.", &in_file);
  const std::span<const Name> names = in_layer ? std::span<const Name>(kLayerNames) : kOtherNames;
  for (const Name& n : names) {
    if (n.in_file == in_file) return (in_layer ? "blk.0." : "") + std::string(n.here);
  }
  return "";
}

// As the original writes it, for messages about a tensor that is not there.
std::string NameInFile(std::string_view here) {
  const bool in_layer = Strip("blk.0.", &here);
  const std::span<const Name> names = in_layer ? std::span<const Name>(kLayerNames) : kOtherNames;
  auto it = std::find_if(names.begin(), names.end(), [&](const Name& n) { return n.here == here; });
  return (in_layer ? "midlayer." : "") + std::string(it->in_file);
}

// What writers leave in a file that no forward pass reads.
bool IsIgnored(std::string_view in_file) {
  return in_file.ends_with("rotary_emb.inv_freq");
}

class Checker {
 public:
  Checker(const Safetensors& files, const HeadTensors& tensors) : files_(files), tensors_(tensors) {}

  bool Has(std::string_view here) const { return tensors_.contains(here); }

  Status Need(std::string_view here, std::vector<uint64_t> shape) const {
    auto it = tensors_.find(here);
    if (it == tensors_.end()) {
      return NotFound(fmt::format("{}: tensor {}: missing", files_.path(), NameInFile(here)));
    }
    return files_.GetFloats(it->second->name, shape).status();
  }
  // There exactly if the config says so.
  Status NeedIf(bool wanted, const char* key, std::string_view here, std::vector<uint64_t> shape) const {
    if (wanted || !Has(here)) return wanted ? Need(here, std::move(shape)) : OkStatus();
    return Bad(here, fmt::format("is there, but {} of config.json is not true", key));
  }
  Status Bad(std::string_view here, const std::string& text) const {
    const SafetensorsTensor& t = *tensors_.find(here)->second;
    return CorruptFile(fmt::format("{}: tensor {}: {}", files_.FileOf(t), t.name, text));
  }

  // Target id of each draft id; empty if each is its own.
  Result<std::vector<int32_t>> VocabularyMap(uint64_t draft_vocab, uint64_t vocab) const {
    std::vector<int32_t> map;
    if (!Has("d2t")) {
      if (draft_vocab == vocab) return map;
      return NotFound(fmt::format("{}: tensor d2t: missing, though draft_vocab_size {} is less than vocab_size {}",
                                  files_.path(), draft_vocab, vocab));
    }
    LS_ASSIGN_OR_RETURN(auto d2t, files_.GetInts(tensors_.find("d2t")->second->name, draft_vocab));
    std::vector<int32_t> draft_of(vocab, -1);
    const auto last = static_cast<int64_t>(vocab) - 1;
    for (size_t i = 0; i < d2t.size(); ++i) {
      const auto id = static_cast<int64_t>(i);
      if (d2t[i] < -id || d2t[i] > last - id) {
        return Bad("d2t", fmt::format("element {} is {}: no token of the target's 0 to {}", i, d2t[i], last));
      }
      int32_t& seen = draft_of[static_cast<size_t>(id + d2t[i])];
      if (seen >= 0) return Bad("d2t", fmt::format("elements {} and {} are both token {}", seen, i, id + d2t[i]));
      seen = static_cast<int32_t>(i);
      map.push_back(static_cast<int32_t>(id + d2t[i]));
    }
    const bool same_ids = std::all_of(d2t.begin(), d2t.end(), [](int64_t d) { return d == 0; });
    // Trainers write a t2d of zeros beside a map that was never made, which is harmless if it leaves nothing out.
    if (Has("t2d") && !(same_ids && draft_vocab == vocab)) {
      LS_ASSIGN_OR_RETURN(auto t2d, files_.GetBools(tensors_.find("t2d")->second->name, vocab));
      for (size_t t = 0; t < t2d.size(); ++t) {
        if ((t2d[t] != 0) == (draft_of[t] >= 0)) continue;
        return Bad("t2d", fmt::format("element {} is {}, but d2t {} token {}", t, t2d[t],
                                      draft_of[t] >= 0 ? "has" : "does not have", t));
      }
    }
    if (same_ids) map.clear();
    return map;
  }

 private:
  const Safetensors& files_;
  const HeadTensors& tensors_;
};

}  // namespace

Result<HeadTensors> FindHeadTensors(const Safetensors& files) {
  HeadTensors found;
  for (const SafetensorsTensor& t : files.tensors()) {
    if (IsIgnored(t.name)) continue;
    const std::string here = NameHere(t.name);
    if (here.empty()) {
      return Unsupported(
          fmt::format("{}: tensor {}: no EAGLE-3 head here has it", files.FileOf(t), GgufFile::Shown(t.name)));
    }
    const auto [it, is_new] = found.emplace(here, &t);
    if (!is_new) {
      return CorruptFile(fmt::format("{}: tensor {}: also there as {}", files.FileOf(t), t.name, it->second->name));
    }
  }
  return found;
}

Status CheckHeadTensors(const Safetensors& files, const HeadTensors& tensors, uint64_t target_vocab,
                        ModelConfig* config) {
  const Checker check(files, tensors);
  const ModelConfig& c = *config;
  const uint64_t h = c.hidden, ht = c.eagle3.target_hidden, f = c.ffn;
  const uint64_t q = uint64_t{c.num_heads} * c.head_dim, kv = uint64_t{c.num_kv_heads} * c.head_dim;
  if (check.Has("fc.weight")) {
    const SafetensorsTensor& fc = *tensors.find("fc.weight")->second;
    if (fc.shape == std::vector<uint64_t>{h, 2 * h} && 2 * h != 3 * ht) {
      return Unsupported(
          fmt::format("{}: tensor {}: shape [{}, {}] is that of an EAGLE-1 or EAGLE-2 head, EAGLE-3 has "
                      "[{}, {}]",
                      files.FileOf(fc), fc.name, h, 2 * h, h, 3 * ht));
    }
  }
  LS_RETURN_IF_ERROR(check.Need("fc.weight", {h, 3 * ht}));
  if (check.Has("fc.bias")) LS_RETURN_IF_ERROR(check.Need("fc.bias", {h}));
  for (int i = 0; i < 3; ++i) {
    LS_RETURN_IF_ERROR(check.NeedIf(c.eagle3.fc_norm, "fc_norm", fmt::format("fc_norm.{}.weight", i), {ht}));
  }
  LS_RETURN_IF_ERROR(check.NeedIf(c.eagle3.norm_before_fc, "norm_before_fc", "fc_input_norm.weight", {3 * ht}));
  LS_RETURN_IF_ERROR(check.Need("blk.0.embd_norm.weight", {h}));
  LS_RETURN_IF_ERROR(check.Need("blk.0.hidden_norm.weight", {h}));
  LS_RETURN_IF_ERROR(check.Need("blk.0.attn_q.weight", {q, 2 * h}));
  LS_RETURN_IF_ERROR(check.Need("blk.0.attn_k.weight", {kv, 2 * h}));
  LS_RETURN_IF_ERROR(check.Need("blk.0.attn_v.weight", {kv, 2 * h}));
  config->qkv_bias = check.Has("blk.0.attn_q.bias") || check.Has("blk.0.attn_k.bias") || check.Has("blk.0.attn_v.bias");
  if (c.qkv_bias) {
    LS_RETURN_IF_ERROR(check.Need("blk.0.attn_q.bias", {q}));
    LS_RETURN_IF_ERROR(check.Need("blk.0.attn_k.bias", {kv}));
    LS_RETURN_IF_ERROR(check.Need("blk.0.attn_v.bias", {kv}));
  }
  LS_RETURN_IF_ERROR(check.Need("blk.0.attn_output.weight", {h, q}));
  LS_RETURN_IF_ERROR(check.Need("blk.0.ffn_norm.weight", {h}));
  LS_RETURN_IF_ERROR(check.Need("blk.0.ffn_gate.weight", {f, h}));
  LS_RETURN_IF_ERROR(check.Need("blk.0.ffn_up.weight", {f, h}));
  LS_RETURN_IF_ERROR(check.Need("blk.0.ffn_down.weight", {h, f}));
  LS_RETURN_IF_ERROR(check.Need("output_norm.weight", {h}));
  LS_ASSIGN_OR_RETURN(config->eagle3.draft_to_target, check.VocabularyMap(c.vocab, target_vocab));

  config->eagle3.own_embedding = check.Has("token_embd.weight");
  if (c.eagle3.own_embedding) {
    LS_RETURN_IF_ERROR(check.Need("token_embd.weight", {target_vocab, h}));
  } else if (h != ht) {
    return NotFound(
        fmt::format("{}: tensor embed_tokens.weight: missing, and the target's rows of {} do not fit a head of "
                    "hidden size {}",
                    files.path(), ht, h));
  }
  if (check.Has("output.weight")) return check.Need("output.weight", {c.vocab, h});
  const bool whole_vocab = c.vocab == target_vocab && c.eagle3.draft_to_target.empty();
  if (whole_vocab && (h == ht || (c.tied_embeddings && c.eagle3.own_embedding))) return OkStatus();
  return NotFound(fmt::format(
      "{}: tensor lm_head.weight: missing, and the target's [{}, {}] does not fit a head of [{}, "
      "{}]{}",
      files.path(), target_vocab, ht, c.vocab, h, c.eagle3.draft_to_target.empty() ? "" : " with a map d2t"));
}

}  // namespace lockstep::model
