// The hash behind a fingerprint of weights: FNV-1a, 64 bits: short, stable by definition, and fast enough for a few
// kilobytes. Not a defence against forgery.
//
// Errors:  none
// Threads: a value
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::model {

struct ModelConfig;

class ContentHash {
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
  // The sizes and constants that decide what the weights mean.
  void Sizes(const ModelConfig& config);
  // Some bytes of a tensor, evenly spread, first and last included: touches at most 8 pages.
  void Samples(std::span<const uint8_t> data);
  // 16 hex digits.
  std::string Digits() const;

 private:
  uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace lockstep::model
