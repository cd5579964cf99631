#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "model/config.h"
#include "model/formats/content_hash.h"
#include "model/formats/gguf.h"

namespace lockstep::model {
namespace {

constexpr size_t kListedTensors = 8;  // of those that the warning names

struct Needed {
  std::string name;
  std::vector<uint64_t> shape;
};

// All tensors of a layer in the order of the forward pass. Asked for layer by layer, so that an absurd layer
// count costs nothing before the first missing tensor.
std::vector<Needed> LayerTensors(const ModelConfig& c, uint32_t layer) {
  uint64_t q = uint64_t{c.num_heads} * c.head_dim, kv = uint64_t{c.num_kv_heads} * c.head_dim;
  uint64_t d = c.hidden, f = c.ffn;
  auto name = [&](const char* part) { return fmt::format("blk.{}.{}.weight", layer, part); };
  std::vector<Needed> all = {{name("attn_norm"), {d}},   {name("attn_q"), {q, d}},      {name("attn_k"), {kv, d}},
                             {name("attn_v"), {kv, d}},  {name("attn_output"), {d, q}}, {name("ffn_norm"), {d}},
                             {name("ffn_gate"), {f, d}}, {name("ffn_up"), {f, d}},      {name("ffn_down"), {d, f}}};
  if (c.qkv_bias) {
    auto bias = [&](const char* part) { return fmt::format("blk.{}.{}.bias", layer, part); };
    all.insert(all.end(), {{bias("attn_q"), {q}}, {bias("attn_k"), {kv}}, {bias("attn_v"), {kv}}});
  }
  if (c.qk_norm) {
    all.insert(all.end(), {{name("attn_q_norm"), {c.head_dim}}, {name("attn_k_norm"), {c.head_dim}}});
  }
  return all;
}

Status CheckOne(const GgufFile& file, const Needed& needed) {
  const GgufTensor* t = file.Find(needed.name);
  if (!t) return NotFound(fmt::format("{}: tensor {}: missing", file.path(), needed.name));
  if (t->shape != needed.shape) {
    return CorruptFile(fmt::format("{}: tensor {}: shape [{}], [{}] expected", file.path(), needed.name,
                                   fmt::join(t->shape, ", "), fmt::join(needed.shape, ", ")));
  }
  if (!t->type->dtype) {
    return Unsupported(
        fmt::format("{}: tensor {}: type {} has no kernel here", file.path(), needed.name, t->type->name));
  }
  if (needed.shape.size() == 1 && t->dtype != DType::kF32) {  // norms, biases; every writer keeps them in F32
    return Unsupported(fmt::format("{}: tensor {}: type {}, F32 expected", file.path(), needed.name, t->type->name));
  }
  return OkStatus();
}

}  // namespace

Status CheckTensors(const GgufFile& file, const ModelConfig& c) {
  std::vector<std::string> used = {"rope_freqs.weight"};
  auto check = [&](Needed needed) {
    Status status = CheckOne(file, needed);
    used.push_back(std::move(needed.name));
    return status;
  };
  LS_RETURN_IF_ERROR(check({"token_embd.weight", {c.vocab, c.hidden}}));
  for (uint32_t layer = 0; layer < c.num_layers; ++layer) {
    for (Needed& needed : LayerTensors(c, layer)) LS_RETURN_IF_ERROR(check(std::move(needed)));
  }
  LS_RETURN_IF_ERROR(check({"output_norm.weight", {c.hidden}}));
  if (!c.tied_embeddings) LS_RETURN_IF_ERROR(check({"output.weight", {c.vocab, c.hidden}}));

  std::sort(used.begin(), used.end());
  std::string listed;
  size_t num_unknown = 0;
  for (const GgufTensor& t : file.tensors()) {
    if (std::binary_search(used.begin(), used.end(), t.name)) continue;
    if (t.name.ends_with(".bias")) {
      return Unsupported(
          fmt::format("{}: tensor {}: no {} layer here has this bias", file.path(), GgufFile::Shown(t.name), c.arch));
    }
    if (++num_unknown <= kListedTensors) listed += (listed.empty() ? "" : ", ") + GgufFile::Shown(t.name);
  }
  if (num_unknown > 0) {
    LogWarning(fmt::format("{}: {} tensors that no {} layer reads are ignored: {}{}", file.path(), num_unknown, c.arch,
                           listed, num_unknown > kListedTensors ? ", ..." : ""));
  }
  return OkStatus();
}

std::string Fingerprint(const GgufFile& file, const ModelConfig& c) {
  ContentHash hash;
  hash.Sizes(c);
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& t : file.tensors()) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->name < b->name; });  // a split keeps its hash
  for (const GgufTensor* t : order) {
    hash.Text(t->name);
    hash.Number(t->type->id);
    for (uint64_t dim : t->shape) hash.Number(dim);
    hash.Samples({t->data, static_cast<size_t>(t->bytes)});
  }
  return hash.Digits();
}

}  // namespace lockstep::model
