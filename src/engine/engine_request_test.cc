// A request's own life: its seed, its stream, its interruption, and what is wrong with it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/cpu/affinity.h"
#include "engine/engine.h"
#include "step/test_util.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::engine {
namespace {

using step::testing::SomeTokens;
using step::testing::TinyModel;

const char kTiny[] = "seed=6, heads=9, kv_heads=3, head_dim=32, hidden=96, tied=False, dtype='Q4_1', context=128";

Result<std::unique_ptr<Engine>> Create(const std::string& path, int tp = 1) {
  EngineOptions options;
  options.model_path = path;
  options.tp = tp;
  options.threads = 1;
  return Engine::Create(options);
}

Request Ask(uint32_t prompt_seed, int64_t max_tokens) {
  Request request;
  request.prompt = SomeTokens(9, 300, prompt_seed);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

TEST(Seed, TheSameTextBeforeAndAfterOtherRequests) {
  auto engine = Create(TinyModel(kTiny));
  ASSERT_TRUE(engine.ok());
  Request request = Ask(1, 30);
  request.sampling.temperature = 4.0f;
  request.sampling.seed = 42;
  request.drafter = Drafter::kNgram;
  auto first = (*engine)->Generate(request);
  ASSERT_TRUE(first.ok());
  for (int again = 0; again < 2; ++again) EXPECT_EQ((*engine)->Generate(request)->token_ids, first->token_ids);
  for (uint32_t i = 0; i < 50; ++i) {
    Request other = Ask(100 + i, 1 + int64_t(i % 20));
    other.sampling.temperature = i % 3 == 0 ? 0.0f : 1.0f;
    other.sampling.seed = i;
    other.drafter = i % 2 ? Drafter::kRandom : Drafter::kNone;
    ASSERT_TRUE((*engine)->Generate(other).ok());
  }
  EXPECT_EQ((*engine)->Generate(request)->token_ids, first->token_ids);
  request.drafter = Drafter::kNone;
  EXPECT_EQ((*engine)->Generate(request)->token_ids, first->token_ids);
  request.sampling.seed = 43;
  EXPECT_NE((*engine)->Generate(request)->token_ids, first->token_ids);
}

// Before any engine of this program was made.
const std::vector<int> cpus_at_start = device::cpu::AllowedCpus().value();

// The leader is pinned while an engine lives; the next one must see the same machine.
TEST(Engine, GivesTheCallersCpusBack) {
  { ASSERT_TRUE(Create(TinyModel(kTiny)).ok()); }
  EXPECT_EQ(device::cpu::AllowedCpus().value(), cpus_at_start);
}

TEST(Stream, ItsPiecesAreTheText) {
  auto engine = Create(TinyModel(kTiny));
  ASSERT_TRUE(engine.ok());
  for (uint64_t seed = 0; seed < 6; ++seed) {
    for (Drafter drafter : {Drafter::kNone, Drafter::kNgram, Drafter::kRandom}) {
      Request request = Ask(3, 40);
      request.sampling.temperature = 1.5f;  // bytes that seldom make whole characters
      request.sampling.seed = seed;
      request.drafter = drafter;
      const Response silent = (*engine)->Generate(request).value();
      std::string streamed;
      int pieces = 0;
      request.on_text = [&](const std::string& piece) {
        EXPECT_FALSE(piece.empty());
        streamed += piece;
        ++pieces;
      };
      const Response loud = (*engine)->Generate(request).value();
      EXPECT_EQ(streamed, loud.text);
      EXPECT_EQ(silent.text, loud.text);
      EXPECT_EQ(silent.token_ids, loud.token_ids);
      EXPECT_GT(pieces, 3);
    }
  }
}

TEST(Interrupt, ReturnsTheTextSoFar) {
  auto engine = Create(TinyModel(kTiny));
  ASSERT_TRUE(engine.ok());
  Request request = Ask(4, 100);
  const Response whole = (*engine)->Generate(request).value();
  int calls = 0;
  request.on_text = [&](const std::string&) {
    if (++calls == 5) (*engine)->Interrupt();
  };
  const Response part = (*engine)->Generate(request).value();
  EXPECT_EQ(part.finish_reason, "interrupted");
  ASSERT_LT(part.token_ids.size(), whole.token_ids.size());
  ASSERT_GE(part.token_ids.size(), 5u);
  EXPECT_TRUE(std::equal(part.token_ids.begin(), part.token_ids.end(), whole.token_ids.begin()));
  EXPECT_FALSE(part.text.empty());
  // The next request is not touched by it.
  request.on_text = nullptr;
  EXPECT_EQ((*engine)->Generate(request)->token_ids, whole.token_ids);
}

TEST(BadRequest, NamesTheFieldAndLeavesTheEngineWell) {
  auto engine = Create(TinyModel(kTiny));
  ASSERT_TRUE(engine.ok());
  const Request good = Ask(5, 10);
  const std::vector<int32_t> expected = (*engine)->Generate(good)->token_ids;
  struct Case {
    const char* word;
    std::function<void(Request&)> spoil;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Case cases[] = {
      {"prompt", [](Request& r) { r.prompt.clear(); }},
      {"prompt token -1", [](Request& r) { r.prompt[3] = -1; }},
      {"prompt token 320", [](Request& r) { r.prompt[3] = 320; }},
      {"prompt", [](Request& r) { r.prompt = SomeTokens(129, 300, 1); }},
      {"-n -2", [](Request& r) { r.max_tokens = -2; }},
      {"temperature", [=](Request& r) { r.sampling.temperature = nan; }},
      {"temperature", [](Request& r) { r.sampling.temperature = -1; }},
      {"temperature", [](Request& r) { r.sampling.temperature = 1e9f; }},
      {"top_p", [=](Request& r) { r.sampling.top_p = nan; }},
      {"top_k", [](Request& r) { r.sampling.top_k = -1; }},
      {"min_p", [](Request& r) { r.sampling.min_p = 2; }},
      {"repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = 0; }},
      {"presence_penalty", [](Request& r) { r.sampling.presence_penalty = 3; }},
      {"frequency_penalty", [=](Request& r) { r.sampling.frequency_penalty = nan; }},
      {"logit_bias",
       [](Request& r) {
         r.sampling.logit_bias = {{320, 1.0f}};
       }},
      {"stop", [](Request& r) { r.stop_token_ids = {320}; }},
      {"stop", [](Request& r) { r.stop_strings = {""}; }},
  };
  for (const Case& c : cases) {
    Request bad = good;
    c.spoil(bad);
    auto response = (*engine)->Generate(bad);
    ASSERT_FALSE(response.ok()) << c.word;
    EXPECT_EQ(response.status().code(), StatusCode::kInvalidArgument) << response.status().message();
    EXPECT_NE(response.status().message().find(c.word), std::string::npos)
        << c.word << ": " << response.status().message();
    EXPECT_EQ((*engine)->Generate(good)->token_ids, expected) << c.word;
  }
  Request last_id = good;
  last_id.prompt[3] = 319;
  EXPECT_TRUE((*engine)->Generate(last_id).ok());
}

// A drafter that is always wrong: every step still commits a token, and no draft is tried twice in vain.
TEST(Drafting, AlwaysWrongDraftsCostNoToken) {
  auto engine = Create(TinyModel(kTiny));
  ASSERT_TRUE(engine.ok());
  Request request = Ask(6, 32);
  const std::vector<int32_t> truth = (*engine)->Generate(request)->token_ids;
  request.drafter = Drafter::kWrong;
  request.truth = truth;
  for (const char* shape : {"chain:4", "tree:8"}) {
    request.shape = ParseDraftShape(shape).value();
    const Response r = (*engine)->Generate(request).value();
    EXPECT_EQ(r.token_ids, truth);
    EXPECT_EQ(r.stats.accepted_rows, 0);
    EXPECT_GT(r.stats.draft_rows, 30);
    EXPECT_LE(r.stats.rounds + r.stats.plain_steps, 32);
  }
}

TEST(NotFinite, TheRequestEndsWithTheNameOfTheLayer) {
  const std::string edit =
      "for i, (name, dims, kind, raw) in enumerate(tensors):\n"
      "    if name == 'blk.1.attn_q.weight': tensors[i] = (name, dims, kind, struct.pack('<f', float('nan')) + "
      "raw[4:])\n";
  for (int tp : {1, 2}) {
    auto engine = Create(TinyModel("seed=6, layers=3", edit), tp);
    ASSERT_TRUE(engine.ok());
    for (Drafter drafter : {Drafter::kNone, Drafter::kNgram, Drafter::kRandom}) {
      Request request = Ask(7, 10);
      request.drafter = drafter;
      auto response = (*engine)->Generate(request);
      ASSERT_FALSE(response.ok());
      EXPECT_EQ(response.status().code(), StatusCode::kInternal);
      for (const char* word : {"step", "finite", "layer 1"}) {
        EXPECT_NE(response.status().message().find(word), std::string::npos) << response.status().message();
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::engine
