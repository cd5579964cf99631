#include "step/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"
#include "kernels/ref/elementary.h"
#include "step/noise.h"

namespace lockstep::step {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Fixed point of a probability relative to the largest. 2^40 keeps every bit of exp down to 2^-17 and sees tokens down
// to 2^-41; 2^24 of them, more than any vocabulary, fit 64 bits.
constexpr float kFixedOne = 0x1p40f;
constexpr int kMaxVocab = 1 << 24;
// How far below the largest z top-p looks at first, and how much further each time: at temperature 1 a nucleus of 0.95
// nearly always lies within e^-8 of the likeliest token, so few tokens are ever sorted.
constexpr float kFirstReach = 8.0f;
constexpr float kReachGrowth = 2.0f;

// Rounds half to even; exact wherever exp has at most 40 bits after the point. The conversion is the instruction
// itself: the library's llrint is a call here, and this runs once for each token of the vocabulary.
uint64_t FixedOf(float exp_value) {
#if defined(__x86_64__)
  return static_cast<uint64_t>(_mm_cvtss_si64(_mm_set_ss(exp_value * kFixedOne)));
#else
  return static_cast<uint64_t>(std::llrint(exp_value * kFixedOne));
#endif
}
uint64_t FixedWeight(float z_minus_max) {
  return FixedOf(kernels::ref::Exp(z_minus_max));
}

// The least weight whose share of `total` reaches `share`, 0 < share <= 1: ceil(share * total) with share in 2^-32.
// Integers only, so that every rank and every device finds the same cut.
uint64_t ShareOf(uint64_t total, float share) {
  const uint64_t fixed_share =
      std::max<uint64_t>(1, static_cast<uint64_t>(std::llrint(static_cast<double>(share) * 0x1p32)));
  const uint64_t low = (total & 0xffffffffu) * fixed_share;  // below 2^32 * (2^32 + 1): fits
  const uint64_t high = (total >> 32) * fixed_share;
  return high + (low >> 32) + ((low & 0xffffffffu) != 0);
}

struct LargerFirst {
  const float* z;
  bool operator()(int32_t a, int32_t b) const { return z[a] > z[b] || (z[a] == z[b] && a < b); }
};

}  // namespace

int32_t Argmax(const float* values, int count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; ++i)
    if (values[i] > values[best]) best = i;
  return best;
}

bool AllFinite(const float* values, int count) {
  bool finite = true;
  for (int i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &values[i], sizeof bits);
    finite &= (bits & 0x7f800000u) != 0x7f800000u;
  }
  return finite;
}

float Logprob(const float* logits, int vocab, int32_t token) {
  const float most = logits[Argmax(logits, vocab)];
  uint64_t sum = 0;
  for (int v = 0; v < vocab; ++v) sum += FixedWeight(logits[v] - most);
  // Log needs a normal number; the sum is at least 1.
  return (logits[token] - most) - kernels::ref::Log(static_cast<float>(sum) * (1 / kFixedOne));
}

Sampler::Sampler(int vocab, const kernels::CpuKernels& kernels) : vocab_(vocab), kernels_(&kernels) {
  LS_CHECK(vocab >= 1 && vocab <= kMaxVocab);
  work_.resize(vocab);
  exp_.resize(vocab);
  weight_.resize(vocab);
  index_.resize(vocab);
  count_.resize(vocab);
  seen_.resize(vocab);
}

// A ban makes values infinite, which the kernel reports instead of a maximum.
int32_t Sampler::ArgmaxOf(const float* values, int vocab) const {
  const kernels::ArgmaxResult best = kernels_->argmax(values, vocab);
  return best.finite ? best.index : Argmax(values, vocab);
}

void Sampler::ApplyPenalties(const SampleRequest& r) {
  const SamplingSpec& spec = *r.spec;
  int num_touched = 0;
  auto touch = [&](std::span<const int32_t> tokens, int increment) {
    for (int32_t token : tokens) {
      LS_CHECK(token >= 0 && token < r.vocab);
      if (!seen_[token]) {
        seen_[token] = 1;
        index_[num_touched++] = token;
      }
      count_[token] += increment;
    }
  };
  if (spec.repetition_penalty != 1) touch(r.prompt_tokens, 0);
  touch(r.output_tokens, 1);
  touch(r.path_tokens, 1);
  for (int i = 0; i < num_touched; ++i) {
    const int32_t token = index_[i];
    float x = work_[token];
    x = x > 0 ? x / spec.repetition_penalty : x * spec.repetition_penalty;
    if (count_[token] > 0) {
      x = x - spec.frequency_penalty * static_cast<float>(count_[token]);
      x = x - spec.presence_penalty;
    }
    work_[token] = x;
    seen_[token] = 0;
    count_[token] = 0;
  }
}

const float* Sampler::Adjust(const SampleRequest& r) {
  const SamplingSpec& spec = *r.spec;
  const bool penalties = spec.repetition_penalty != 1 || spec.presence_penalty != 0 || spec.frequency_penalty != 0;
  if (!penalties && spec.num_logit_bias == 0) return r.logits;
  std::copy(r.logits, r.logits + r.vocab, work_.begin());
  if (penalties) ApplyPenalties(r);
  for (int i = 0; i < spec.num_logit_bias; ++i) {
    const int32_t token = spec.bias_token[i];
    LS_CHECK(token >= 0 && token < r.vocab);
    // A ban is the one infinity from here on: no argmax, top-k or sum can bring it back.
    work_[token] = spec.bias_value[i] <= kBanBias ? -kInfinity : work_[token] + spec.bias_value[i];
  }
  return work_.data();
}

int32_t Sampler::Scale(const float* adjusted, const SamplingSpec& spec, int vocab) {
  const float inverse = 1.0f / spec.temperature;
  for (int v = 0; v < vocab; ++v) work_[v] = adjusted[v] * inverse;
  const int32_t top = ArgmaxOf(work_.data(), vocab);
  return std::isfinite(work_[top]) ? top : -1;
}

int Sampler::KeepTopP(float top_p, int num_kept, float z_max) {
  for (int i = 0; i < num_kept; ++i) exp_[i] = work_[index_[i]] - z_max;
  kernels_->exp(exp_.data(), exp_.data(), num_kept);
  uint64_t total = 0;
  for (int i = 0; i < num_kept; ++i) {
    const uint64_t weight = FixedOf(exp_[i]);
    weight_[index_[i]] = weight;
    total += weight;
  }
  const uint64_t needed = ShareOf(total, top_p);
  // All tokens within some reach of the largest are a prefix of the full order: once they hold the share, only they
  // need sorting.
  int num_near = 0;
  for (float reach = kFirstReach;; reach *= kReachGrowth) {
    const float least = z_max - reach;
    uint64_t sum = 0;
    num_near = 0;
    for (int i = 0; i < num_kept; ++i) {
      if (!(work_[index_[i]] >= least)) continue;
      sum += weight_[index_[i]];
      std::swap(index_[num_near++], index_[i]);
    }
    if (sum >= needed || num_near == num_kept) break;
  }
  std::sort(index_.begin(), index_.begin() + num_near, LargerFirst{work_.data()});
  uint64_t sum = 0;
  for (int i = 0; i < num_near; ++i) {
    sum += weight_[index_[i]];
    if (sum >= needed) return i + 1;
  }
  return num_near;
}

int Sampler::Filter(const SamplingSpec& spec, int vocab, float z_max) {
  int num_kept = 0;
  for (int32_t v = 0; v < vocab; ++v)
    if (work_[v] > -kInfinity) index_[num_kept++] = v;
  if (spec.top_k > 0 && spec.top_k < num_kept) {
    std::nth_element(index_.begin(), index_.begin() + spec.top_k, index_.begin() + num_kept, LargerFirst{work_.data()});
    num_kept = spec.top_k;
  }
  if (spec.top_p < 1) num_kept = KeepTopP(spec.top_p, num_kept, z_max);
  if (spec.min_p > 0) {
    const auto least = static_cast<uint64_t>(std::ceil(static_cast<double>(spec.min_p) * kFixedOne));
    auto end = std::remove_if(index_.begin(), index_.begin() + num_kept,
                              [&](int32_t token) { return FixedWeight(work_[token] - z_max) < least; });
    num_kept = static_cast<int>(end - index_.begin());
  }
  return num_kept;
}

namespace {

// Tokens that are looked at together: most groups hold none whose noise could lift it to the best score.
constexpr int kScan = 64;

[[gnu::optimize("O3")]] bool AnyMayWin(const float* z, float best) {
  int any = 0;
  for (int i = 0; i < kScan; ++i) any |= z[i] + kMaxGumbel >= best;
  return any != 0;
}

}  // namespace

SampleResult Sampler::Sample(const SampleRequest& r) {
  LS_CHECK(r.vocab >= 1 && r.vocab <= vocab_);
  const SamplingSpec& spec = *r.spec;
  SampleResult result;
  result.logprob = std::numeric_limits<float>::quiet_NaN();
  if (!kernels_->argmax(r.logits, r.vocab).finite) return result;
  const float* adjusted = Adjust(r);
  int32_t best_token;
  if (spec.greedy()) {
    best_token = ArgmaxOf(adjusted, r.vocab);
    if (!std::isfinite(adjusted[best_token])) return result;
  } else {
    best_token = Scale(adjusted, spec, r.vocab);
    if (best_token < 0) return result;
    const float* z = work_.data();
    // The largest z is kept by every filter. Starting from its score, few others can win, and only those need noise.
    float best = z[best_token] + Gumbel(spec.seed, r.position, best_token);
    PhiloxBlock block{};
    int32_t block_idx = -1;
    auto consider = [&](int32_t token) {
      if (z[token] + kMaxGumbel < best) return;
      if (block_idx != token / 4) {
        block_idx = token / 4;
        block = NoiseBlock(spec.seed, r.position, block_idx);
      }
      const uint32_t word = block.word[token % 4];
      if (z[token] + GumbelBound(word) < best) return;  // spares nearly all logarithms
      const float score = z[token] + GumbelFromWord(word);
      if (score > best || (score == best && token < best_token)) best = score, best_token = token;
    };
    const bool filters = spec.top_k > 0 || spec.top_p < 1 || spec.min_p > 0;
    if (filters) {
      const int num_kept = Filter(spec, r.vocab, z[best_token]);
      for (int i = 0; i < num_kept; ++i) consider(index_[i]);
    } else {
      for (int32_t begin = 0; begin < r.vocab; begin += kScan) {
        const int32_t end = std::min(begin + kScan, r.vocab);
        if (end - begin == kScan && !AnyMayWin(z + begin, best)) continue;
        for (int32_t v = begin; v < end; ++v) consider(v);
      }
    }
  }
  result.token = best_token;
  result.finite = true;
  if (r.want_logprob) result.logprob = Logprob(r.logits, r.vocab, best_token);
  return result;
}

std::span<const int32_t> Sampler::Kept(const SampleRequest& r) {
  LS_CHECK(r.vocab >= 1 && r.vocab <= vocab_);
  if (!AllFinite(r.logits, r.vocab)) return {};
  SamplingSpec spec = *r.spec;
  if (spec.greedy()) spec.temperature = 1;  // the filters of an argmax change nothing; show them at 1
  const int32_t top = Scale(Adjust(r), spec, r.vocab);
  if (top < 0) return {};
  const int num_kept = Filter(spec, r.vocab, work_[top]);
  std::sort(index_.begin(), index_.begin() + num_kept);
  return {index_.data(), static_cast<size_t>(num_kept)};
}

}  // namespace lockstep::step
