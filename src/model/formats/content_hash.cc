#include "model/formats/content_hash.h"

#include <fmt/format.h>

#include "model/config.h"

namespace lockstep::model {

void ContentHash::Sizes(const ModelConfig& c) {
  Text(c.arch);
  for (uint64_t x : {c.num_layers, c.hidden, c.ffn, c.num_heads, c.num_kv_heads, c.head_dim, c.vocab}) Number(x);
  Bytes(&c.rms_norm_eps, sizeof c.rms_norm_eps);
  Bytes(&c.rope_theta, sizeof c.rope_theta);
  Bytes(&c.rope_factor, sizeof c.rope_factor);
}

void ContentHash::Samples(std::span<const uint8_t> data) {
  constexpr uint64_t kSamples = 8, kSampleBytes = 16;
  if (data.size() <= kSamples * kSampleBytes) return Bytes(data.data(), data.size());
  for (uint64_t i = 0; i < kSamples; ++i) {
    const uint64_t at = (data.size() - kSampleBytes) / (kSamples - 1) * i;
    Bytes(data.data() + at, kSampleBytes);
  }
  Bytes(data.data() + data.size() - kSampleBytes, kSampleBytes);
}

std::string ContentHash::Digits() const {
  return fmt::format("{:016x}", state_);
}

}  // namespace lockstep::model
