// The text is a function of model, prompt, sampling and seed: whatever drafts, and wherever a text ends.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/env.h"
#include "engine/drafts.h"
#include "model/formats/eagle3_test_util.h"
#include "step/test_util.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::engine {
namespace {

using step::testing::SomeTokens;
using step::testing::TinyModel;

// A head that knows nothing, over three outputs of the model, the last one too.
std::string RandomHead() {
  model::testing::HeadShape shape;
  shape.hidden = shape.target_hidden = 96;
  shape.heads = 3;
  shape.kv_heads = 1;
  shape.head_dim = 32;
  shape.vocab = 320;
  shape.draft_vocab = 96;
  static model::testing::HeadFolder folder(shape);
  folder.config["eagle_config"] = R"({"eagle_aux_hidden_state_layer_ids": [1, 2, 3]})";
  static const std::string path = folder.Write();
  return path;
}

std::unique_ptr<Engine> Make(const std::string& path, int context = 0, int tp = 1) {
  EngineOptions options;
  options.model_path = path;
  options.draft_head = RandomHead();
  options.force_draft = true;
  options.draft_model = TinyModel("seed=7, heads=3, kv_heads=1, head_dim=32, hidden=32, tied=False, context=256");
  options.context = context;
  options.tp = tp;
  options.threads = 1;
  auto engine = Engine::Create(options);
  if (!engine.ok()) std::fprintf(stderr, "%s\n", engine.status().message().c_str());
  LS_CHECK(engine.ok());
  return std::move(engine).value();
}

// An output weight of its own, or each token would be followed by itself.
const char kTiny[] =
    "seed=6, layers=4, heads=9, kv_heads=3, head_dim=32, hidden=96, tied=False, dtype='Q4_1', context=256";

Response Answer(Engine& engine, const Request& request) {
  auto response = engine.Generate(request);
  if (!response.ok()) std::fprintf(stderr, "%s\n", response.status().message().c_str());
  LS_CHECK(response.ok());
  return std::move(response).value();
}

Request Ask(std::vector<int32_t> prompt, int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  return request;
}

// A prompt that repeats itself.
std::vector<int32_t> Repeating(int length) {
  std::vector<int32_t> tokens = SomeTokens(7, 300, 5);
  while (int(tokens.size()) < length) tokens.push_back(tokens[tokens.size() - 7]);
  return tokens;
}

std::vector<step::SamplingParams> Samplings() {
  std::vector<step::SamplingParams> all(4);
  all[1].temperature = 0.8f;
  all[1].top_p = 0.95f;
  all[1].seed = 7;
  all[2].repetition_penalty = 1.3f;
  all[2].presence_penalty = 0.5f;
  all[2].frequency_penalty = 0.4f;
  all[3].logit_bias = {{20, 3.0f}, {30, -1e31f}, {2, 1.5f}};
  all[3].temperature = 0.5f;
  all[3].seed = 9;
  return all;
}

std::vector<std::string> Shapes() {
  return {"auto", "chain:1", "chain:2", "chain:3", "chain:4", "chain:5", "chain:6", "chain:7", "tree:4", "tree:8"};
}
constexpr Drafter kDrafters[] = {Drafter::kNgram,  Drafter::kEagle3, Drafter::kDraft, Drafter::kAuto,
                                 Drafter::kOracle, Drafter::kWrong,  Drafter::kRandom};

struct Count {
  int64_t accepted = 0, rejected = 0;
};

// Every drafter and shape gives what plain decoding gives. `truth`: what oracle and wrong are told, the untruncated text.
void ExpectSame(Engine& engine, Request request, const std::vector<int32_t>& truth,
                const std::vector<std::string>& shapes, Count* count) {
  request.drafter = Drafter::kNone;
  const Response plain = Answer(engine, request);
  request.truth = truth;
  for (Drafter drafter : kDrafters) {
    if ((drafter == Drafter::kEagle3 && engine.drafts().head < 0) ||
        (drafter == Drafter::kDraft && engine.drafts().model < 0))
      continue;  // this engine was given none
    for (const std::string& shape : shapes) {
      request.drafter = drafter;
      request.shape = ParseDraftShape(shape).value();
      std::string streamed;
      request.on_text = [&streamed](const std::string& piece) { streamed += piece; };
      const Response r = Answer(engine, request);
      const std::string what = std::string(DrafterName(drafter)) + " " + shape;
      ASSERT_EQ(r.token_ids, plain.token_ids) << what;
      ASSERT_EQ(r.text, plain.text) << what;
      ASSERT_EQ(streamed, plain.text) << what;
      ASSERT_EQ(r.finish_reason, plain.finish_reason) << what;
      count->accepted += r.stats.accepted_rows;
      count->rejected += r.stats.draft_rows - r.stats.accepted_rows;
      // Each step commits at least one token, whatever the drafts were.
      ASSERT_LE(r.stats.rounds + r.stats.plain_steps, int64_t(r.token_ids.size())) << what;
    }
  }
}

TEST(Identity, DraftersShapesAndSamplings) {
  for (int tp : {1, 2}) {
    auto engine = Make(TinyModel(kTiny), 0, tp);
    Count count;
    for (const step::SamplingParams& sampling : Samplings()) {
      Request request = Ask(Repeating(30), 40);
      request.sampling = sampling;
      request.ignore_eos = true;
      const std::vector<int32_t> truth = Answer(*engine, request).token_ids;
      ASSERT_EQ(truth.size(), 40u);
      ASSERT_GT(std::set<int32_t>(truth.begin(), truth.end()).size(), 5u);  // no text of one word only
      ExpectSame(*engine, request, truth,
                 tp == 1 ? Shapes() : std::vector<std::string>{"auto", "chain:3", "chain:7", "tree:8"}, &count);
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(count.accepted, 300);
    EXPECT_GT(count.rejected, 300);
  }
}

// The whole product of drafters, shapes, ranks, samplings, limits and ends.
TEST(Identity, FullProduct) {
  Count count;
  int64_t texts = 0;
  for (int tp : {1, 2}) {
    auto engine = Make(TinyModel(kTiny), 0, tp);
    for (int seed = -1; seed < 20; ++seed) {
      Request request = Ask(Repeating(30), 40);
      request.sampling.temperature = seed < 0 ? 0.0f : 0.8f;
      request.sampling.seed = uint64_t(std::max(seed, 0));
      request.ignore_eos = true;
      const Response whole = Answer(*engine, request);
      ExpectSame(*engine, request, whole.token_ids, Shapes(), &count);
      for (int64_t limit = 1; limit <= 9; ++limit) {
        Request limited = request;
        limited.max_tokens = limit;
        ExpectSame(*engine, limited, whole.token_ids, {"chain:4", "tree:8"}, &count);
      }
      for (size_t at = 0; at < 10; ++at) {  // an end of text at every offset of a block
        Request stopped = request;
        stopped.stop_token_ids = {whole.token_ids[at]};
        ExpectSame(*engine, stopped, whole.token_ids, {"chain:7", "tree:8"}, &count);
      }
      if (HasFatalFailure()) return;
      texts += std::ssize(kDrafters) * (std::ssize(Shapes()) + 2 * 9 + 2 * 10);
    }
  }
  std::printf("%lld texts, %lld draft rows accepted, %lld rejected\n", static_cast<long long>(texts),
              static_cast<long long>(count.accepted), static_cast<long long>(count.rejected));
}

// The end may lie anywhere in an accepted block. A stop wins over a limit at the same token.
TEST(Identity, EndsInsideAcceptedBlocks) {
  auto engine = Make(TinyModel(kTiny));
  Request request = Ask(Repeating(30), 14);
  request.ignore_eos = true;
  const Response whole = Answer(*engine, request);
  Count count;
  const std::vector<std::string> shapes = {"chain:3", "chain:7", "tree:8"};
  for (int64_t limit = 0; limit <= 9; ++limit) {
    Request limited = request;
    limited.max_tokens = limit;
    ASSERT_EQ(int64_t(Answer(*engine, limited).token_ids.size()), limit);
    ExpectSame(*engine, limited, whole.token_ids, shapes, &count);
  }
  int stops_in_blocks = 0;
  for (size_t at = 0; at < 10; ++at) {
    Request stopped = request;
    stopped.stop_token_ids = {whole.token_ids[at]};
    for (int64_t limit : {int64_t(at), int64_t(at) + 1, int64_t(14)}) {
      stopped.max_tokens = limit;
      const Response plain = Answer(*engine, stopped);
      const size_t first = size_t(std::find(whole.token_ids.begin(), whole.token_ids.end(), whole.token_ids[at]) -
                                  whole.token_ids.begin());
      const bool by_stop = int64_t(first) < limit;
      EXPECT_EQ(plain.finish_reason, by_stop ? "stop" : "length");
      EXPECT_EQ(plain.token_ids.size(), by_stop ? first + 1 : size_t(limit));
      stops_in_blocks += by_stop && first > 1;
      ExpectSame(*engine, stopped, whole.token_ids, shapes, &count);
    }
  }
  EXPECT_GT(stops_in_blocks, 3);
  EXPECT_GT(count.accepted, 100);
}

TEST(Identity, StopStringsInsideAcceptedBlocks) {
  auto engine = Make(TinyModel(kTiny));
  Request request = Ask(Repeating(30), 24);
  request.ignore_eos = true;
  request.sampling.temperature = 1.5f;  // a text of many different pieces
  request.sampling.seed = 3;
  const Response whole = Answer(*engine, request);
  ASSERT_GT(whole.text.size(), 12u);
  Count count;
  int stopped = 0;
  for (size_t at = 1; at + 3 < whole.text.size(); at += 2) {
    const std::string stop = whole.text.substr(at, 3);  // may begin and end in the middle of a token
    Request r = request;
    r.stop_strings = {stop, "never in a text"};
    const Response plain = Answer(*engine, r);
    EXPECT_EQ(plain.text, whole.text.substr(0, whole.text.find(stop)));
    EXPECT_EQ(plain.finish_reason, "stop");
    ++stopped;
    ExpectSame(*engine, r, whole.token_ids, {"chain:7", "tree:8"}, &count);
  }
  EXPECT_GT(stopped, 4);
}

TEST(Identity, EndOfTextToken) {
  auto engine = Make(TinyModel(kTiny));
  const int32_t eos = engine->tokenizer().eos_ids().at(0);
  Count count;
  int ended = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Request request = Ask(Repeating(20), 30);
    request.sampling.temperature = 1.0f;
    request.sampling.seed = seed;
    request.sampling.logit_bias = {{eos, 6.0f}};
    request.ignore_eos = true;
    const Response whole = Answer(*engine, request);
    ASSERT_EQ(whole.token_ids.size(), 30u);
    request.ignore_eos = false;
    const Response plain = Answer(*engine, request);
    if (plain.finish_reason == "stop") {
      EXPECT_EQ(plain.token_ids.back(), eos);
      ended += plain.token_ids.size() > 2;
    }
    ExpectSame(*engine, request, whole.token_ids, {"chain:7", "tree:8"}, &count);
  }
  EXPECT_GT(ended, 1);
}

// Prompt and completion never exceed the context, and the last token is the one that plain decoding writes there.
// A context of whole pages, and one that ends within a page.
TEST(Identity, EndOfTheContext) {
  for (int context : {96, 128}) {
    auto engine = Make(TinyModel(kTiny), context);
    Count count;
    for (int left : {33, 32, 31, 16, 6, 5, 4, 3, 2, 1, 0}) {
      Request request = Ask(Repeating(context - left), -1);
      request.ignore_eos = true;
      const Response plain = Answer(*engine, request);
      EXPECT_EQ(plain.token_ids.size(), size_t(left));
      EXPECT_EQ(plain.finish_reason, "length");
      ExpectSame(*engine, request, plain.token_ids, {"chain:4", "chain:7", "tree:8"}, &count);
      request.max_tokens = 1000;
      ExpectSame(*engine, request, plain.token_ids, {"chain:7"}, &count);
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(count.accepted, 100);
  }
}

// What earlier requests said is drafted from, and the text stays what it is.
TEST(Identity, ACorpusOfEarlierRequestsChangesNoText) {
  EngineOptions options;
  options.model_path = TinyModel(kTiny);
  options.threads = 1;
  options.spec_corpus_bytes = 1 << 20;
  auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  Request request = Ask(SomeTokens(20, 300, 11), 40);
  request.ignore_eos = true;
  request.sampling.temperature = 1.5f;  // a text that does not repeat itself
  request.sampling.seed = 5;
  const Response plain = Answer(**engine, request);
  request.drafter = Drafter::kNgram;
  request.shape = ParseDraftShape("chain:4").value();
  const Response drafted = Answer(**engine, request);
  EXPECT_EQ(drafted.token_ids, plain.token_ids);
  EXPECT_GT(drafted.stats.accepted_rows, 20);  // its own text taught it nothing
}

// The ledger's books and the clock agree on what a request took, and a fixed shape keeps no books.
TEST(Speculation, TheLedgerReportsEachRequest) {
  auto engine = Make(TinyModel(kTiny));
  Request request = Ask(Repeating(30), 60);
  request.ignore_eos = true;
  request.drafter = Drafter::kAuto;
  for (int i = 0; i < 3; ++i) {
    const Response r = Answer(*engine, request);
    EXPECT_TRUE(r.stats.governed);
    EXPECT_FALSE(r.stats.last_decision.empty());
    EXPECT_LT(std::abs(r.stats.ledger_secs), 60 * r.stats.decode_secs);
    int64_t accepted = 0;
    for (int64_t at : r.stats.accepted_at) accepted += at;
    EXPECT_EQ(accepted, r.stats.accepted_rows);
  }
  request.shape = ParseDraftShape("chain:2").value();
  EXPECT_FALSE(Answer(*engine, request).stats.governed);
}

std::string RealModel() {
  const std::string& path = Env::Get().test_model;
  return path.empty() ? LS_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf" : path;
}

TEST(RealModel, DraftersAndShapesKeepTheText) {
  ASSERT_TRUE(std::filesystem::exists(RealModel())) << RealModel() << " is missing; tools/get_model.py fetches it";
  EngineOptions options;
  options.model_path = RealModel();
  options.draft_head = LS_SOURCE_DIR "/drafts/smollm2-135m-eagle3";
  options.tp = 2;
  options.context = 512;
  auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  Count count;
  for (const char* text :
       {"Repeat: the cat sat on the mat. the cat sat on the mat. the cat sat on", "def add(a, b):\n"}) {
    for (const step::SamplingParams& sampling : {Samplings()[0], Samplings()[1]}) {
      auto prompt = (*engine)->tokenizer().Encode(text, {});
      ASSERT_TRUE(prompt.ok());
      Request request = Ask(*prompt, 24);
      request.sampling = sampling;
      const std::vector<int32_t> truth = Answer(**engine, request).token_ids;
      ExpectSame(**engine, request, truth, {"auto", "chain:3", "tree:8"}, &count);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(count.accepted, 100);
  EXPECT_GT(count.rejected, 100);
}

}  // namespace
}  // namespace lockstep::engine
