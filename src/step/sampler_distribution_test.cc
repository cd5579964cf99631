// The sampler's draws against the exact distribution, by chi-square, and a planted bias that the same test must find.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "step/noise.h"
#include "step/sampler.h"

namespace lockstep::step {
namespace {

constexpr int kVocab = 12;
constexpr int kDraws = 240000;
const std::vector<float> kLogits = {1.0f, 0.2f, -0.5f, 2.1f, 0.9f, -2.0f, 1.7f, 0.0f, -1.1f, 0.4f, 1.0f, -3.0f};
const std::vector<int32_t> kPrompt = {3, 6, 6}, kOutput = {0, 3, 3, 9}, kPath = {0, 7};

// Chi-square as a standard normal (Wilson and Hilferty). Cells that expect fewer than 5 draws are put together.
double ChiSquareZ(const std::vector<int64_t>& counts, const std::vector<double>& p) {
  const double draws = static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0ll));
  double chi = 0, small_expected = 0, small_count = 0;
  int cells = 0;
  auto add = [&](double expected, double count) {
    chi += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t v = 0; v < p.size(); ++v) {
    const double expected = p[v] * draws;
    if (expected == 0 && counts[v] > 0) return 1e9;  // a token that may never come
    if (expected < 5)
      small_expected += expected, small_count += static_cast<double>(counts[v]);
    else
      add(expected, static_cast<double>(counts[v]));
  }
  if (small_expected > 0) add(small_expected, small_count);
  const double df = cells - 1;
  if (df < 1) return 0;
  return (std::cbrt(chi / df) - (1 - 2 / (9 * df))) / std::sqrt(2 / (9 * df));
}

// The rule in double: penalties, bias, temperature, top-k, top-p, min-p, softmax.
std::vector<double> Exact(const SamplingParams& s) {
  std::vector<double> x(kLogits.begin(), kLogits.end());
  std::vector<int> count(kVocab), seen(kVocab);
  for (int32_t t : kPrompt) seen[t] = 1;
  for (auto* run : {&kOutput, &kPath})
    for (int32_t t : *run) ++count[t], seen[t] = 1;
  for (int v = 0; v < kVocab; ++v) {
    if (seen[v]) x[v] = x[v] > 0 ? x[v] / s.repetition_penalty : x[v] * s.repetition_penalty;
    x[v] -= s.frequency_penalty * count[v];
    if (count[v]) x[v] -= s.presence_penalty;
  }
  for (auto [token, bias] : s.logit_bias) x[token] += bias;
  std::vector<int> order(kVocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x[a] > x[b]; });
  std::vector<double> p(kVocab);
  auto normalise = [&] {
    double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& q : p) q /= sum;
  };
  for (int i = 0; i < (s.top_k > 0 ? std::min(s.top_k, kVocab) : kVocab); ++i)
    p[order[i]] = std::exp((x[order[i]] - x[order[0]]) / s.temperature);
  normalise();
  double sum = 0;
  for (int v : order) {
    if (sum >= s.top_p && s.top_p < 1) p[v] = 0;
    sum += p[v];
  }
  for (int v : order)
    if (p[v] < s.min_p * p[order[0]]) p[v] = 0;
  normalise();
  return p;
}

// A row with logits, prompt, output and draft path as above; only its position is open.
SampleRequest TheRequest(const SamplingSpec& spec) {
  SampleRequest request;
  request.logits = kLogits.data();
  request.vocab = kVocab;
  request.spec = &spec;
  request.prompt_tokens = kPrompt;
  request.output_tokens = kOutput;
  request.path_tokens = kPath;
  return request;
}

// Draws from the product over `seeds` x `positions`, all different names.
std::vector<int64_t> Draw(const SamplingParams& params, int num_seeds) {
  Sampler sampler(kVocab);
  std::vector<int64_t> counts(kVocab);
  auto spec = MakeSamplingSpec(params, kVocab);
  EXPECT_TRUE(spec.ok());
  SampleRequest request = TheRequest(*spec);
  for (int seed = 0; seed < num_seeds; ++seed) {
    spec->seed = 1000003ull * seed + 17;
    for (int position = 0; position < kDraws / num_seeds; ++position) {
      request.position = position;
      ++counts[sampler.Sample(request).token];
    }
  }
  return counts;
}

// 4.5 standard deviations: the draws are fixed, so this passes or fails for ever; by chance it fails once in 300000.
constexpr double kLimit = 4.5;

TEST(SamplerDistribution, MatchesTheExactOne) {
  const SamplingParams cases[] = {
      {.temperature = 1},
      {.temperature = 0.6f},
      {.temperature = 2.5f},
      {.temperature = 1, .top_k = 4},
      {.temperature = 1, .top_p = 0.8f},
      {.temperature = 1, .min_p = 0.15f},
      {.temperature = 0.9f, .top_k = 8, .top_p = 0.9f, .min_p = 0.05f},
      {.temperature = 1, .repetition_penalty = 1.4f},
      {.temperature = 1, .presence_penalty = 0.7f, .frequency_penalty = 0.4f},
      {.temperature = 0.8f,
       .top_k = 7,
       .top_p = 0.95f,
       .min_p = 0.02f,
       .repetition_penalty = 1.2f,
       .presence_penalty = 0.3f,
       .frequency_penalty = -0.2f,
       .logit_bias = {{5, 2.5f}, {3, -0.5f}}},
  };
  for (const SamplingParams& params : cases)
    for (int num_seeds : {1, 400, kDraws}) {  // along positions, across seeds, and both
      const double z = ChiSquareZ(Draw(params, num_seeds), Exact(params));
      EXPECT_LT(z, kLimit) << "case " << &params - cases << ", " << num_seeds << " seeds";
    }
}

// Neighbouring positions and neighbouring tokens share key or counter words; their draws must still be independent.
TEST(SamplerDistribution, NeighbouringPositionsAndSeedsAreIndependent) {
  const SamplingParams params = {.temperature = 1, .top_k = 4};
  const std::vector<double> p = Exact(params);
  auto spec = MakeSamplingSpec(params, kVocab);
  Sampler sampler(kVocab);
  for (bool along_positions : {true, false}) {
    std::vector<int64_t> pairs(kVocab * kVocab);
    std::vector<double> expected(kVocab * kVocab);
    for (int a = 0; a < kVocab; ++a)
      for (int b = 0; b < kVocab; ++b) expected[a * kVocab + b] = p[a] * p[b];
    auto draw = [&](int i) {
      spec->seed = along_positions ? 5 : i;
      SampleRequest request = TheRequest(*spec);
      request.position = along_positions ? i : 5;
      return sampler.Sample(request).token;
    };
    for (int i = 0; i < kDraws; i += 2) ++pairs[draw(i) * kVocab + draw(i + 1)];
    EXPECT_LT(ChiSquareZ(pairs, expected), kLimit);
  }
}

// The same loop over noise that the test chooses: first the true one, to show that the loop is the product's, then
// distorted ones, each of which the chi-square must catch.
using Noise = std::function<float(uint64_t seed, int64_t position, int32_t token)>;

std::vector<int64_t> DrawWith(const Noise& noise) {
  std::vector<int64_t> counts(kVocab);
  for (int position = 0; position < kDraws; ++position) {
    int32_t best = 0;
    float best_score = 0;
    for (int32_t token = 0; token < kVocab; ++token) {
      const float score = kLogits[token] + noise(17, position, token);
      if (token == 0 || score > best_score) best = token, best_score = score;
    }
    ++counts[best];
  }
  return counts;
}

TEST(SamplerDistribution, APlantedBiasIsFound) {
  const SamplingParams params = {.temperature = 1};
  const std::vector<double> p = Exact(params);
  EXPECT_EQ(DrawWith(Gumbel), Draw(params, 1));
  const Noise planted[] = {
      // one token favoured by 6 % in odds (3 % is below what this many draws can tell)
      [](uint64_t s, int64_t n, int32_t t) { return Gumbel(s, n, t) + (t == 4 ? 0.06f : 0.0f); },
      // a temperature wrong by 2 %
      [](uint64_t s, int64_t n, int32_t t) { return Gumbel(s, n, t) * 1.02f; },
      // the noise of a lane used twice
      [](uint64_t s, int64_t n, int32_t t) { return Gumbel(s, n, t == 6 ? 3 : t); },
      // the tail cut off
      [](uint64_t s, int64_t n, int32_t t) { return std::min(Gumbel(s, n, t), 3.0f); },
      // a coarse uniform: 5 bits
      [](uint64_t s, int64_t n, int32_t t) {
        return GumbelFromWord(NoiseBlock(s, n, t / 4).word[t % 4] & 0xf8000000u);
      },
  };
  for (const Noise& noise : planted)
    EXPECT_GT(ChiSquareZ(DrawWith(noise), p), kLimit) << "planted " << &noise - planted;
}

}  // namespace
}  // namespace lockstep::step
