// What a request asks of the sampler, and the same as plain bytes for the step.
//
// Units:   temperature and bias in logits; top_p and min_p in probability; the rest as named
// Errors:  kInvalidArgument  a field that is no number or out of range, a token outside the vocabulary: names the field
//                            and the value
// Threads: values; SamplingSpec has no pointers, so it may lie in memory that forked ranks share
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep::step {

// Entries of a logit bias: what the OpenAI interface allows.
inline constexpr int kMaxLogitBias = 300;
// Below this a temperature is 0, as in vLLM: a gap of 2e-4 between two logits exceeds any noise.
inline constexpr float kMinTemperature = 1e-5f;
// Above this the noise (at most 20 wide) drowns any logit: a larger value is a mistake.
inline constexpr float kMaxTemperature = 1e4f;
// A bias at or below this bans the token. A larger one is a number to add, -100 too: as in the OpenAI interface it
// makes a token nearly impossible, and no promise is made beyond that.
inline constexpr float kBanBias = -1e30f;
// The largest magnitude of a bias that is not a ban: far beyond any logit, far from overflow.
inline constexpr float kMaxBias = 1e6f;

struct SamplingParams {
  float temperature = 0;                                   // 0: plain argmax
  int top_k = 0;                                           // 0: off
  float top_p = 1;                                         // (0, 1]; 1: off
  float min_p = 0;                                         // [0, 1], of the largest probability; 0: off
  float repetition_penalty = 1;                            // [0.01, 100]; prompt, output; x > 0: x / p, else x * p
  float presence_penalty = 0;                              // [-2, 2]; over the output
  float frequency_penalty = 0;                             // [-2, 2]; over the output, times the count
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // each token once
  uint64_t seed = 0;
};

struct SamplingSpec {
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int32_t num_logit_bias = 0;
  uint64_t seed = 0;
  int32_t bias_token[kMaxLogitBias] = {};
  float bias_value[kMaxLogitBias] = {};

  bool greedy() const { return temperature < kMinTemperature; }
};
static_assert(std::is_trivially_copyable_v<SamplingSpec>);

Status ValidateSampling(const SamplingParams& params, int vocab);

// Validates, then copies.
Result<SamplingSpec> MakeSamplingSpec(const SamplingParams& params, int vocab);

}  // namespace lockstep::step
