#include "step/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "step/noise.h"

namespace lockstep::step {
namespace {

SamplingSpec Spec(const SamplingParams& params, int vocab = 1 << 20) {
  auto spec = MakeSamplingSpec(params, vocab);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return *spec;
}

std::vector<float> RandomLogits(int vocab, float width, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, width);
  std::vector<float> logits(vocab);
  for (float& l : logits) l = normal(rng);
  return logits;
}

SampleRequest Request(const std::vector<float>& logits, const SamplingSpec& spec, int64_t position = 0) {
  SampleRequest request;
  request.logits = logits.data();
  request.vocab = static_cast<int>(logits.size());
  request.spec = &spec;
  request.position = position;
  return request;
}

TEST(SamplingParams, EveryBadFieldIsNamedWithItsValue) {
  const float nan = std::nanf("");
  auto text = [](auto change) {
    SamplingParams p;
    change(p);
    Status status = ValidateSampling(p, 512);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  using P = SamplingParams;
  EXPECT_NE(text([](P& p) { p.temperature = -1; }).find("temperature: -1"), std::string::npos);
  EXPECT_NE(text([&](P& p) { p.temperature = nan; }).find("temperature: nan"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.temperature = 1e39; }).find("temperature: inf"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.top_k = -3; }).find("top_k: -3"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.top_p = 0; }).find("top_p: 0"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.top_p = 1.5f; }).find("top_p: 1.5"), std::string::npos);
  EXPECT_NE(text([&](P& p) { p.top_p = nan; }).find("top_p: nan"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.min_p = -0.5f; }).find("min_p: -0.5"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.repetition_penalty = 0; }).find("repetition_penalty: 0"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.presence_penalty = 3; }).find("presence_penalty: 3"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.frequency_penalty = -3; }).find("frequency_penalty: -3"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.logit_bias = {{191222, -100}}; }).find("191222"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.logit_bias = {{-1, 1}}; }).find("token -1"), std::string::npos);
  EXPECT_NE(text([&](P& p) { p.logit_bias = {{5, nan}}; }).find("nan for token 5"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.logit_bias = {{5, 1e30f}}; }).find("token 5"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.logit_bias = {{5, 1}, {6, 1}, {5, 2}}; }).find("token 5 appears"), std::string::npos);
  EXPECT_NE(text([](P& p) { p.logit_bias.assign(301, {1, 1.0f}); }).find("301 entries"), std::string::npos);
  EXPECT_NE(text([](P& p) {
              for (int v = 0; v < 256; ++v) p.logit_bias.push_back({v, 0.0f});
              p.logit_bias.push_back({512, 0.0f});
            }).find("token 512"),
            std::string::npos);
  SamplingParams all_banned;
  all_banned.logit_bias = {{0, -1e30f}, {1, -std::numeric_limits<float>::infinity()}};
  EXPECT_EQ(ValidateSampling(all_banned, 2).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(ValidateSampling(all_banned, 3).ok());
  EXPECT_TRUE(ValidateSampling(SamplingParams{}, 512).ok());
}

TEST(Sampler, GreedyTakesTheLargestThenTheSmallestId) {
  Sampler sampler(8);
  SamplingSpec spec;
  EXPECT_EQ(sampler.Sample(Request({1, 3, 2, 3}, spec)).token, 1);
  EXPECT_EQ(sampler.Sample(Request({-0.0f, 0.0f, -1}, spec)).token, 0);
  EXPECT_EQ(sampler.Sample(Request({-1, 0.0f, -0.0f}, spec)).token, 1);
  EXPECT_EQ(sampler.Sample(Request({-5}, spec)).token, 0);
  EXPECT_EQ(sampler.Sample(Request({-3e38f, -3e38f}, spec)).token, 0);
}

TEST(Sampler, NonFiniteLogitsAreRefusedAndTheNextRowIsUnharmed) {
  const float inf = std::numeric_limits<float>::infinity();
  Sampler sampler(4);
  for (float temperature : {0.0f, 1.0f})
    for (float bad : {inf, -inf, std::nanf("")}) {
      SamplingSpec spec = Spec({.temperature = temperature});
      for (int where = 0; where < 4; ++where) {
        std::vector<float> logits = {1, 2, 3, 4};
        logits[where] = bad;
        SampleResult result = sampler.Sample(Request(logits, spec));
        EXPECT_FALSE(result.finite);
        EXPECT_EQ(result.token, -1);
        EXPECT_TRUE(sampler.Kept(Request(logits, spec)).empty());
      }
      EXPECT_TRUE(sampler.Sample(Request({1, 2, 3, 4}, spec)).finite);
    }
  // Finite logits that overflow under the temperature are refused too.
  SamplingSpec cold = Spec({.temperature = 1e-5f});
  EXPECT_FALSE(sampler.Sample(Request({1, 3e38f, 0, 0}, cold)).finite);
}

TEST(Sampler, LogitsAreNotModified) {
  Sampler sampler(64);
  std::vector<float> logits = RandomLogits(64, 3, 1);
  const std::vector<float> before = logits;
  const std::vector<int32_t> output = {1, 2, 3};
  SamplingSpec spec = Spec({.temperature = 0.7f,
                            .top_k = 9,
                            .top_p = 0.9f,
                            .min_p = 0.01f,
                            .repetition_penalty = 1.3f,
                            .presence_penalty = 1,
                            .frequency_penalty = 1,
                            .logit_bias = {{3, 5.0f}}});
  SampleRequest request = Request(logits, spec);
  request.output_tokens = output;
  request.want_logprob = true;
  sampler.Sample(request);
  EXPECT_EQ(logits, before);
}

// The rule written down as slowly as possible: no skip, no scratch, no partial sort.
int32_t SlowSample(const std::vector<float>& z, const std::vector<int32_t>& kept, uint64_t seed, int64_t position) {
  int32_t best = -1;
  float best_score = 0;
  for (int32_t token : kept) {
    const float score = z[token] + Gumbel(seed, position, token);
    if (best < 0 || score > best_score) best = token, best_score = score;
  }
  return best;
}

TEST(Sampler, TheSkipRuleChangesNothing) {
  const int vocab = 1000;
  Sampler sampler(vocab);
  std::vector<int32_t> all(vocab);
  std::iota(all.begin(), all.end(), 0);
  for (float width : {0.0f, 0.1f, 1.0f, 5.0f, 20.0f}) {
    std::vector<float> logits = RandomLogits(vocab, width, 7);
    for (int position = 0; position < 400; ++position) {
      SamplingSpec spec = Spec({.temperature = 1, .seed = 99});
      EXPECT_EQ(sampler.Sample(Request(logits, spec, position)).token, SlowSample(logits, all, 99, position));
    }
  }
}

// The filters in double, by full sorts. `margin` is set to how near a top-p or min-p cut came to the other side.
std::vector<int32_t> SlowKept(const std::vector<float>& logits, const SamplingSpec& spec, double* margin) {
  const int vocab = static_cast<int>(logits.size());
  std::vector<float> z(vocab);
  for (int v = 0; v < vocab; ++v) z[v] = logits[v] * (1.0f / spec.temperature);
  std::vector<int32_t> order(vocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return z[a] > z[b]; });
  if (spec.top_k > 0 && spec.top_k < vocab) order.resize(spec.top_k);
  double total = 0;
  for (int32_t token : order) total += std::exp(double{z[token]} - z[order[0]]);
  *margin = 1;
  if (spec.top_p < 1) {
    double sum = 0;
    size_t kept = 0;
    while (kept < order.size()) {
      sum += std::exp(double{z[order[kept]]} - z[order[0]]) / total;
      ++kept;
      *margin = std::min(*margin, std::fabs(sum - spec.top_p));
      if (sum >= spec.top_p) break;
    }
    order.resize(kept);
  }
  if (spec.min_p > 0) {
    std::vector<int32_t> kept;
    for (int32_t token : order) {
      const double p = std::exp(double{z[token]} - z[order[0]]);
      *margin = std::min(*margin, std::fabs(p - spec.min_p));
      if (p >= spec.min_p) kept.push_back(token);
    }
    order = kept;
  }
  std::sort(order.begin(), order.end());
  return order;
}

TEST(Sampler, FiltersEqualASlowDoubleVersion) {
  std::mt19937 rng(5);
  int num_close = 0, num_compared = 0;
  Sampler sampler(3000);
  for (int trial = 0; trial < 3000; ++trial) {
    const int vocab = trial % 10 == 0 ? 3000 : 1 + static_cast<int>(rng() % 200);
    std::vector<float> logits = RandomLogits(vocab, 0.5f + trial % 7, rng());
    if (trial % 3 == 0)
      for (float& l : logits) l = std::round(l);  // many ties
    SamplingParams params;
    params.temperature = 0.3f + 0.1f * (trial % 13);
    if (rng() % 2) params.top_k = 1 + static_cast<int>(rng() % (vocab + 5));
    if (rng() % 2) params.top_p = (1 + rng() % 1000) / 1001.0f;
    if (rng() % 2) params.min_p = (rng() % 300) / 1000.0f;
    SamplingSpec spec = Spec(params);
    double margin;
    std::vector<int32_t> slow = SlowKept(logits, spec, &margin);
    std::span<const int32_t> kept = sampler.Kept(Request(logits, spec));
    // fp32 exp is good to 2^-22 of the value: a cut nearer than this may fall on either side.
    if (margin < 1e-6) {
      ++num_close;
      continue;
    }
    ++num_compared;
    ASSERT_EQ(std::vector<int32_t>(kept.begin(), kept.end()), slow) << "trial " << trial;
    // The token drawn is the noise's choice among exactly these.
    std::vector<float> z(vocab);
    for (int v = 0; v < vocab; ++v) z[v] = logits[v] * (1.0f / spec.temperature);
    ASSERT_EQ(sampler.Sample(Request(logits, spec, trial)).token, SlowSample(z, slow, spec.seed, trial));
  }
  EXPECT_GT(num_compared, 2900);
  EXPECT_LT(num_close, 100);
}

TEST(Sampler, TiesAreCutByIdInEveryFilter) {
  Sampler sampler(8);
  auto kept = [&](const std::vector<float>& logits, SamplingParams params) {
    params.temperature = 1;
    SamplingSpec spec = Spec(params);
    auto span = sampler.Kept(Request(logits, spec));
    return std::vector<int32_t>(span.begin(), span.end());
  };
  const std::vector<float> flat = {1, 1, 1, 1};
  EXPECT_EQ(kept(flat, {.top_k = 2}), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(kept(flat, {.top_p = 0.5f}), (std::vector<int32_t>{0, 1}));  // exactly half: two
  EXPECT_EQ(kept(flat, {.top_p = 0.51f}), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(kept(flat, {.top_p = 1e-9f}), (std::vector<int32_t>{0}));  // one is always left
  EXPECT_EQ(kept(flat, {.min_p = 1}), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept({-0.0f, 0.0f, -0.0f}, {.top_k = 2}), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(kept({2, 1, 2, 0}, {.min_p = 1}), (std::vector<int32_t>{0, 2}));
  // top-p sees the probabilities that top-k left: of two equal tokens 0.4 is reached by one.
  EXPECT_EQ(kept(flat, {.top_k = 2, .top_p = 0.4f}), (std::vector<int32_t>{0}));
  EXPECT_EQ(kept(flat, {.logit_bias = {{1, -1e30f}}}), (std::vector<int32_t>{0, 2, 3}));
}

TEST(Sampler, ABannedTokenIsNeverDrawnAndABiasIsANumber) {
  Sampler sampler(4);
  SamplingSpec banned = Spec({.temperature = 5, .logit_bias = {{2, kBanBias}}});
  SamplingSpec biased = Spec({.temperature = 100, .logit_bias = {{2, -100}}});
  int num_biased = 0;
  for (int position = 0; position < 20000; ++position) {
    EXPECT_NE(sampler.Sample(Request({0, 0, 50, 0}, banned, position)).token, 2);
    num_biased += sampler.Sample(Request({0, 0, 0, 0}, biased, position)).token == 2;
  }
  EXPECT_NEAR(num_biased / 20000.0, std::exp(-1.0) / (3 + std::exp(-1.0)), 0.01);
  SamplingSpec greedy = Spec({.logit_bias = {{2, kBanBias}, {1, 1.5f}}});
  EXPECT_EQ(sampler.Sample(Request({1, 0, 50, 0}, greedy)).token, 1);
}

TEST(Sampler, PenaltiesFollowTheStatedArithmetic) {
  Sampler sampler(6);
  const std::vector<float> logits = {4, -4, 3.9f, 0, 1, 3.5f};
  const std::vector<int32_t> prompt = {0, 0, 1}, output = {2, 2};
  auto greedy = [&](SamplingParams params) {
    SamplingSpec spec = Spec(params);
    SampleRequest request = Request(logits, spec);
    request.prompt_tokens = prompt;
    request.output_tokens = output;
    return sampler.Sample(request).token;
  };
  EXPECT_EQ(greedy({}), 0);
  EXPECT_EQ(greedy({.repetition_penalty = 2}),
            5);                                        // 4/2, 3.9/2 fall below 3.5; once, not per occurrence
  EXPECT_EQ(greedy({.repetition_penalty = 1.1f}), 0);  // 4/1.1 = 3.64
  EXPECT_EQ(greedy({.frequency_penalty = -0.1f}), 2);  // 3.9 + 0.2; the prompt does not count
  EXPECT_EQ(greedy({.presence_penalty = -0.2f}), 2);   // 3.9 + 0.2
  EXPECT_EQ(greedy({.presence_penalty = -0.05f}), 0);  // 3.9 + 0.05: once, whatever the count
  // Negative logits are multiplied: with everything else banned, 1 (-4 -> -8) loses to a -5.
  SamplingSpec spec = Spec(
      {.repetition_penalty = 2, .logit_bias = {{3, -5}, {0, kBanBias}, {2, kBanBias}, {4, kBanBias}, {5, kBanBias}}});
  SampleRequest request = Request(logits, spec);
  EXPECT_EQ(sampler.Sample(request).token, 1);
  request.prompt_tokens = prompt;
  EXPECT_EQ(sampler.Sample(request).token, 3);
}

TEST(Sampler, ADraftPathCountsLikeCommittedTokens) {
  const int vocab = 50;
  Sampler sampler(vocab), fresh(vocab);
  std::mt19937 rng(3);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<float> logits = RandomLogits(vocab, 1, rng());
    std::vector<int32_t> prompt(rng() % 20), run(1 + rng() % 30);
    for (int32_t& t : prompt) t = rng() % vocab;
    for (int32_t& t : run) t = rng() % vocab;
    SamplingSpec spec = Spec({.temperature = trial % 4 ? 0.8f : 0.0f,
                              .top_k = trial % 5 ? 0 : 8,
                              .top_p = trial % 3 ? 1 : 0.9f,
                              .repetition_penalty = 1.2f,
                              .presence_penalty = 0.5f,
                              .frequency_penalty = 0.3f,
                              .seed = static_cast<uint64_t>(trial)});
    SampleRequest request = Request(logits, spec, 100 + trial);
    request.prompt_tokens = prompt;
    request.output_tokens = run;
    const int32_t committed = fresh.Sample(request).token;
    for (size_t cut = 0; cut <= run.size(); ++cut) {
      request.output_tokens = std::span(run).first(cut);
      request.path_tokens = std::span(run).subspan(cut);
      ASSERT_EQ(sampler.Sample(request).token, committed);
    }
    // The order of the tokens before the row does not matter to penalties.
    std::shuffle(prompt.begin(), prompt.end(), rng);
    std::shuffle(run.begin(), run.end(), rng);
    ASSERT_EQ(sampler.Sample(request).token, committed);
  }
}

// Case A4: a seed gives the same text alone, among other rows and after any number of other samples.
TEST(Sampler, TheSameSeedGivesTheSameTokensWhateverHappenedBetween) {
  const int vocab = 300;
  auto run = [&](Sampler& sampler, int noise_rows) {
    std::vector<int32_t> tokens;
    for (int position = 20; position < 30; ++position) {
      SamplingSpec other = Spec({.temperature = 1, .top_k = 5, .repetition_penalty = 2, .seed = 1});
      for (int i = 0; i < noise_rows; ++i) {
        const std::vector<float> other_logits = RandomLogits(vocab, 1, i);
        SampleRequest request = Request(other_logits, other, i);
        request.output_tokens = tokens;
        sampler.Sample(request);
      }
      SamplingSpec spec = Spec({.temperature = 2, .frequency_penalty = 0.1f, .seed = 42});
      std::vector<float> logits = RandomLogits(vocab, 2, position);
      SampleRequest request = Request(logits, spec, position);
      request.output_tokens = tokens;
      tokens.push_back(sampler.Sample(request).token);
    }
    return tokens;
  };
  Sampler a(vocab), b(vocab + 77);
  const std::vector<int32_t> first = run(a, 0);
  EXPECT_EQ(run(a, 0), first);
  EXPECT_EQ(run(a, 0), first);
  EXPECT_EQ(run(a, 4), first);
  EXPECT_EQ(run(b, 50), first);
}

TEST(Sampler, LogprobIsThatOfTheUnmodifiedSoftmax) {
  const int vocab = 2000;
  Sampler sampler(vocab);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<float> logits = RandomLogits(vocab, 3, trial);
    SamplingSpec spec = Spec({.temperature = 1.5f, .top_k = 3, .logit_bias = {{0, 50.0f}}});
    SampleRequest request = Request(logits, spec, trial);
    EXPECT_TRUE(std::isnan(sampler.Sample(request).logprob));  // not asked for, not made up
    request.want_logprob = true;
    SampleResult result = sampler.Sample(request);
    double most = *std::max_element(logits.begin(), logits.end()), sum = 0;
    for (float l : logits) sum += std::exp(l - most);
    EXPECT_NEAR(result.logprob, logits[result.token] - most - std::log(sum), 2e-6 * 20);
    EXPECT_LT(result.logprob, 0);
  }
}

}  // namespace
}  // namespace lockstep::step
