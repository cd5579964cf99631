#include "step/sampling_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::step {
namespace {

// Written so that a NaN, which compares false with everything, fails.
Status CheckRange(const char* field, float value, float least, float most) {
  if (value >= least && value <= most) return OkStatus();
  return InvalidArgument(fmt::format("{}: {} is not in [{}, {}]", field, value, least, most));
}

Status ValidateBias(const std::vector<std::pair<int32_t, float>>& bias, int vocab) {
  if (bias.size() > kMaxLogitBias)
    return InvalidArgument(fmt::format("logit_bias: {} entries, at most {} allowed", bias.size(), kMaxLogitBias));
  std::vector<int32_t> tokens;
  int num_banned = 0;
  for (const auto& [token, value] : bias) {
    if (token < 0 || token >= vocab)
      return InvalidArgument(fmt::format("logit_bias: token {} is outside the vocabulary of {}", token, vocab));
    const bool banned = value <= kBanBias;
    if (!banned && !(std::fabs(value) <= kMaxBias))
      return InvalidArgument(
          fmt::format("logit_bias: {} for token {} is not in [{}, {}]", value, token, -kMaxBias, kMaxBias));
    num_banned += banned;
    tokens.push_back(token);
  }
  std::sort(tokens.begin(), tokens.end());
  auto twin = std::adjacent_find(tokens.begin(), tokens.end());
  if (twin != tokens.end()) return InvalidArgument(fmt::format("logit_bias: token {} appears twice", *twin));
  if (num_banned == vocab) return InvalidArgument(fmt::format("logit_bias: bans all {} tokens", vocab));
  return OkStatus();
}

}  // namespace

Status ValidateSampling(const SamplingParams& p, int vocab) {
  LS_RETURN_IF_ERROR(CheckRange("temperature", p.temperature, 0, kMaxTemperature));
  if (p.top_k < 0) return InvalidArgument(fmt::format("top_k: {} is negative (0 switches it off)", p.top_k));
  if (!(p.top_p > 0 && p.top_p <= 1)) return InvalidArgument(fmt::format("top_p: {} is not in (0, 1]", p.top_p));
  LS_RETURN_IF_ERROR(CheckRange("min_p", p.min_p, 0, 1));
  LS_RETURN_IF_ERROR(CheckRange("repetition_penalty", p.repetition_penalty, 0.01f, 100));
  LS_RETURN_IF_ERROR(CheckRange("presence_penalty", p.presence_penalty, -2, 2));
  LS_RETURN_IF_ERROR(CheckRange("frequency_penalty", p.frequency_penalty, -2, 2));
  return ValidateBias(p.logit_bias, vocab);
}

Result<SamplingSpec> MakeSamplingSpec(const SamplingParams& p, int vocab) {
  LS_RETURN_IF_ERROR(ValidateSampling(p, vocab));
  SamplingSpec spec;
  spec.temperature = p.temperature;
  spec.top_k = p.top_k;
  spec.top_p = p.top_p;
  spec.min_p = p.min_p;
  spec.repetition_penalty = p.repetition_penalty;
  spec.presence_penalty = p.presence_penalty;
  spec.frequency_penalty = p.frequency_penalty;
  spec.seed = p.seed;
  for (const auto& [token, value] : p.logit_bias) {
    spec.bias_token[spec.num_logit_bias] = token;
    spec.bias_value[spec.num_logit_bias] = value;
    ++spec.num_logit_bias;
  }
  return spec;
}

}  // namespace lockstep::step
