// Draft models in the engine: which are refused, that they change no text, and that the target drafting for itself is
// always right.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/engine.h"
#include "spec/model_proposer.h"
#include "step/test_util.h"

namespace lockstep::engine {
namespace {

using step::testing::Scratch;
using step::testing::SomeTokens;
using step::testing::TinyModel;

const char kTarget[] =
    "seed=6, heads=9, kv_heads=3, head_dim=32, hidden=96, tied=False, dtype='Q4_1', context=1024, layers=3";
const char kSmaller[] = "seed=9, heads=4, kv_heads=2, head_dim=16, hidden=64, tied=False, dtype='Q8_0', context=512";

// The first `layers` of a model, by the tool that users have.
std::string Cut(const std::string& path, int layers) {
  const std::string out = Scratch().File("cut" + std::to_string(layers) + ".gguf");
  const std::string command = "python3 " LS_SOURCE_DIR "/tools/cut_model.py " + path + " " + out + " --layers " +
                              std::to_string(layers) + " >/dev/null";
  LS_CHECK_EQ(std::system(command.c_str()), 0);
  return out;
}

EngineOptions Options(const std::string& draft, int tp = 1, int threads = 1) {
  EngineOptions options;
  options.model_path = TinyModel(kTarget);
  options.draft_model = draft;
  options.tp = tp;
  options.threads = threads;
  return options;
}

std::unique_ptr<Engine> Make(const EngineOptions& options) {
  auto engine = Engine::Create(options);
  if (!engine.ok()) std::fprintf(stderr, "%s\n", engine.status().message().c_str());
  LS_CHECK(engine.ok());
  return std::move(engine).value();
}

Response Answer(Engine& engine, const Request& request) {
  auto response = engine.Generate(request);
  if (!response.ok()) std::fprintf(stderr, "%s\n", response.status().message().c_str());
  LS_CHECK(response.ok());
  return std::move(response).value();
}

Request Ask(int prompt_tokens, int64_t max_tokens, float temperature) {
  Request request;
  request.prompt = SomeTokens(prompt_tokens, 300, 5);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.sampling.temperature = temperature;
  request.sampling.seed = 11;
  return request;
}

// The text of plain decoding, and how often the draft was right.
DecodeStats ExpectSame(Engine& engine, Request request, const std::string& shape, Drafter drafter = Drafter::kDraft) {
  request.drafter = Drafter::kNone;
  const Response plain = Answer(engine, request);
  request.drafter = drafter;
  request.shape = ParseDraftShape(shape).value();
  const Response r = Answer(engine, request);
  EXPECT_EQ(r.token_ids, plain.token_ids) << shape;
  EXPECT_EQ(r.text, plain.text) << shape;
  EXPECT_EQ(r.finish_reason, plain.finish_reason) << shape;
  return r.stats;
}

// Window, cache, positions and noise are the target's own, so every guess is right. A noise position off by one, or a
// guess left in the cache as text, shows at once.
TEST(DraftModel, TheTargetItselfIsAlwaysRight) {
  for (const auto& [tp, threads] : std::vector<std::pair<int, int>>{{1, 1}, {2, 2}}) {
    auto engine = Make(Options(TinyModel(kTarget), tp, threads));
    for (float temperature : {0.0f, 0.8f, 1.5f}) {
      for (int depth : {1, 3, 4, 7}) {
        // The first token comes from the prompt; then whole rounds.
        const int rounds = 60 / (depth + 1);
        const DecodeStats stats =
            ExpectSame(*engine, Ask(40, 1 + rounds * (depth + 1), temperature), "chain:" + std::to_string(depth));
        EXPECT_EQ(stats.rounds, rounds) << "depth " << depth << " T " << temperature;
        EXPECT_EQ(stats.accepted_rows, stats.draft_rows) << "depth " << depth << " T " << temperature;
        EXPECT_EQ(stats.accept_length(), depth + 1.0);
      }
      // The likeliest path is among the nodes of a tree.
      const DecodeStats tree = ExpectSame(*engine, Ask(40, 60, temperature), "tree:8");
      EXPECT_GT(tree.accept_length(), 1.9) << temperature;
      ExpectSame(*engine, Ask(40, 60, temperature), "auto", Drafter::kAuto);
    }
  }
}

// Beyond the window the draft sees less than the target: the text stays.
TEST(DraftModel, TextsBeyondTheWindow) {
  auto engine = Make(Options(TinyModel(kTarget)));
  constexpr int kWindow = spec::kDraftWindow;
  for (int prompt : {kWindow - 2, kWindow - 1, kWindow, kWindow + 1, 300, 600}) {
    for (float temperature : {0.0f, 0.8f}) {
      const DecodeStats stats = ExpectSame(*engine, Ask(prompt, 24, temperature), "chain:3");
      if (prompt < kWindow) {  // with the first token the window is full
        EXPECT_EQ(stats.accepted_rows, stats.draft_rows) << prompt;
      }
      EXPECT_GT(stats.accepted_rows, 0) << prompt << " tokens, T " << temperature;
    }
  }
}

TEST(DraftModel, AnyDraftAnyLimitAnyContext) {
  int64_t accepted = 0, rejected = 0;
  for (const std::string& draft : {TinyModel(kSmaller), Cut(TinyModel(kTarget), 2)}) {
    for (int tp : {1, 2}) {
      EngineOptions options = Options(draft, tp);
      options.context = 160;
      auto engine = Make(options);
      for (float temperature : {0.0f, 0.8f}) {
        for (const char* shape : {"chain:1", "chain:3", "chain:7", "tree:8", "tree:16", "auto"}) {
          const DecodeStats stats = ExpectSame(*engine, Ask(30, 40, temperature), shape);
          accepted += stats.accepted_rows;
          rejected += stats.draft_rows - stats.accepted_rows;
        }
        for (int limit = 0; limit <= 9; ++limit) ExpectSame(*engine, Ask(10, limit, temperature), "chain:7");
        for (int left : {33, 9, 2, 1, 0}) ExpectSame(*engine, Ask(160 - left, -1, temperature), "tree:8");
        for (const char* shape : {"chain:3", "tree:8"})
          ExpectSame(*engine, Ask(30, 40, temperature), shape, Drafter::kAuto);
      }
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(rejected, 1000);
}

// With a fixed shape the automatic choice is the first drafter that has anything to say.
TEST(DraftModel, AutoWithAFixedShapeFallsBackOnTheDraft) {
  auto engine = Make(Options(TinyModel(kTarget)));
  Request request = Ask(40, 41, 0.8f);
  const DecodeStats alone = ExpectSame(*engine, request, "chain:3", Drafter::kNgram);
  const DecodeStats both = ExpectSame(*engine, request, "chain:3", Drafter::kAuto);
  EXPECT_EQ(both.plain_steps, 0);
  EXPECT_GT(both.accepted_rows, alone.accepted_rows);
}

Status Refusal(const EngineOptions& options) {
  auto engine = Engine::Create(options);
  return engine.ok() ? OkStatus() : engine.status();
}

Status RefusalOf(const std::string& edit, const std::string& fields = kSmaller) {
  return Refusal(Options(TinyModel(fields, edit)));
}

void ExpectRefused(const Status& status, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  for (const std::string& word : words)
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " is not in: " << status.message();
}

// A vocabulary with other tokens: `change` is Python over `tokens` and `kinds`.
std::string Vocabulary(const std::string& change) {
  return "tokens = make_tiny_model.CONTROL_TOKENS + make_tiny_model.byte_alphabet() + [m.replace(' ', '') for m in "
         "make_tiny_model.MERGES]\n"
         "kinds = [3] * 3 + [1] * (len(tokens) - 3)\n"
         "while len(tokens) < 320:\n  tokens.append('[UNUSED_%d]' % len(tokens)); kinds.append(5)\n" +
         change +
         "\nkeys = [k for k in keys if b'tokenizer.ggml.tokens' not in k and b'tokenizer.ggml.token_type' not in k]\n"
         "keys.append(w.kv('tokenizer.ggml.tokens', w.ARRAY, (w.STRING, tokens)))\n"
         "keys.append(w.kv('tokenizer.ggml.token_type', w.ARRAY, (w.I32, kinds)))\n";
}

TEST(DraftModel, AnotherVocabularyIsRefused) {
  ASSERT_TRUE(RefusalOf(Vocabulary("")).ok());
  const std::string target = TinyModel(kTarget);
  const std::string swapped = Vocabulary("tokens[40], tokens[41] = tokens[41], tokens[40]");
  ExpectRefused(RefusalOf(swapped),
                {TinyModel(kSmaller, swapped), target, "2 differ", "token 40", "\"&\" (type 1) against \"%\""});
  ExpectRefused(RefusalOf(Vocabulary("kinds[50] = 4")), {"1 differs", "token 50", "type 4", "type 1"});
  // 284 tokens have a name.
  ExpectRefused(RefusalOf(Vocabulary("kinds[284] = 1")), {"285 tokens against 284", "1 differs", "token 284"});
  ExpectRefused(RefusalOf(Vocabulary("tokens, kinds = tokens[:270], kinds[:270]")),
                {"270 tokens against 284", "14 differ", "token 270: none against"});
}

// Files pad a vocabulary, each in its own way.
TEST(DraftModel, PaddingIsNoDifference) {
  for (const char* change : {"tokens[300] = '<pad of another kind>'", "tokens, kinds = tokens[:284], kinds[:284]"}) {
    EXPECT_TRUE(RefusalOf(Vocabulary(change)).ok()) << change << ": " << RefusalOf(Vocabulary(change)).message();
  }
  // More rows than the target has, or fewer than the ids that the target writes: the text stays.
  for (const char* vocab : {", vocab=352", ", vocab=284"}) {
    auto engine = Make(Options(TinyModel(kSmaller + std::string(vocab))));
    for (float temperature : {0.0f, 0.8f, 1.5f}) {
      Request request = Ask(30, 60, temperature);
      request.prompt[7] = request.prompt.back() = 319;
      ExpectSame(*engine, request, "tree:8");
    }
  }
}

TEST(DraftModel, AnotherTokenizerIsRefused) {
  const char* kWithout = "keys = [k for k in keys if b'tokenizer.ggml.%s' not in k]\n";
  auto without = [&](const char* key) {
    std::string edit = kWithout;
    return edit.replace(edit.find("%s"), 2, key);
  };
  ExpectRefused(RefusalOf(without("pre") + "keys.append(w.kv('tokenizer.ggml.pre', w.STRING, 'qwen2'))"),
                {"tokenizer.ggml.pre", "qwen2", "smollm"});
  ExpectRefused(RefusalOf(without("merges") + "keys.append(w.kv('tokenizer.ggml.merges', w.ARRAY, (w.STRING, "
                                              "make_tiny_model.MERGES[:-1])))"),
                {"24 merges against 25", "merge 24: none"});
  // Which ids end a text is the target's own affair.
  EXPECT_TRUE(RefusalOf(without("eos_token_id") + "keys.append(w.kv('tokenizer.ggml.eos_token_id', w.U32, 0))").ok());
  const Status none = RefusalOf("keys = [k for k in keys if b'tokenizer.' not in k]");
  EXPECT_EQ(none.code(), StatusCode::kNotFound) << none.message();
  EXPECT_NE(none.message().find("tokenizer.ggml.tokens"), std::string::npos);
}

TEST(DraftModel, RanksThatCannotShareADraftKeepStep) {
  const std::string draft = TinyModel("seed=2, heads=2, kv_heads=1, tied=False");
  auto engine = Make(Options(draft, 4));
  ExpectSame(*engine, Ask(40, 30, 0.8f), "tree:6");
  ExpectSame(*engine, Ask(40, 30, 0), "chain:3");
}

TEST(DraftModel, WhatIsWrongWithADraftNamesIt) {
  // A head size that no kernel has.
  const std::string odd = TinyModel("heads=4, kv_heads=2, head_dim=20, hidden=80, ffn=160");
  const Status size = Refusal(Options(odd));
  EXPECT_FALSE(size.ok());
  EXPECT_NE(size.message().find("draft model"), std::string::npos) << size.message();
  EXPECT_EQ(Refusal(Options("/nonexistent/draft.gguf")).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::engine
