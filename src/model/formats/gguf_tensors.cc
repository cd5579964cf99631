#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "model/config.h"
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

// FNV-1a, 64 bits: short, stable by definition, and fast enough for a few kilobytes.
class Hash {
 public:
  void Bytes(const void* data, size_t num_bytes) {
    auto* p = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < num_bytes; ++i) state_ = (state_ ^ p[i]) * 0x100000001b3ull;
  }
  void Number(uint64_t x) { Bytes(&x, sizeof x); }
  void Text(std::string_view s) {
    Number(s.size());
    Bytes(s.data(), s.size());
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ull;
};

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
  constexpr uint64_t kSamples = 8, kSampleBytes = 16;  // touches at most 8 pages a tensor
  Hash hash;
  hash.Text(c.arch);
  for (uint64_t x : {c.num_layers, c.hidden, c.ffn, c.num_heads, c.num_kv_heads, c.head_dim, c.vocab}) hash.Number(x);
  hash.Bytes(&c.rms_norm_eps, sizeof c.rms_norm_eps);
  hash.Bytes(&c.rope_theta, sizeof c.rope_theta);
  hash.Bytes(&c.rope_factor, sizeof c.rope_factor);

  std::vector<const GgufTensor*> order;
  for (const GgufTensor& t : file.tensors()) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->name < b->name; });  // a split keeps its hash
  for (const GgufTensor* t : order) {
    hash.Text(t->name);
    hash.Number(t->type->id);
    for (uint64_t dim : t->shape) hash.Number(dim);
    if (t->bytes <= kSamples * kSampleBytes) {
      hash.Bytes(t->data, t->bytes);
      continue;
    }
    for (uint64_t i = 0; i < kSamples; ++i) {  // evenly spread, first and last bytes included
      uint64_t at = (t->bytes - kSampleBytes) / (kSamples - 1) * i;
      hash.Bytes(t->data + at, kSampleBytes);
    }
    hash.Bytes(t->data + t->bytes - kSampleBytes, kSampleBytes);
  }
  return fmt::format("{:016x}", hash.value());
}

}  // namespace lockstep::model
