// The engine: a model, its tokenizer, its ranks, and the round that turns a prompt into text.
//
// Units:    tokens; seconds
// Errors:   Create: as loading (kNotFound, kCorruptFile, kUnsupported), cutting (kInvalidArgument) and memory say
//           Generate: kInvalidArgument for a request that cannot be (names the field); kPeerLost for ranks;
//           kInternal when the model's numbers stop being finite (names step and layer)
// Threads:  one caller; Interrupt from any thread or signal handler
// Order:    the text is a function of model, prompt, sampling, seed and kv type, and of nothing else (docs/numerics.md)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "engine/request.h"
#include "step/all_reduce_delay.h"

namespace lockstep::spec {
class Governor;
}
namespace lockstep::model {
class WeightSource;
}
namespace lockstep::step {
class StepRunner;
}
namespace lockstep::tokenizer {
class Tokenizer;
}

namespace lockstep::engine {

struct LoadedDrafts;

struct EngineOptions {
  std::string model_path;
  int tp = 1;
  int threads = 0;             // a rank; 0: usable cores / tp, at least 1
  bool process_ranks = false;  // ranks are processes instead of threads
  int context = 0;             // 0: min(what the model was trained for, 4096)
  int prefill_chunk = 512;     // prompt tokens a step, at most
  DType kv_dtype = DType::kF16;
  double timeout_secs = 30;  // a rank waits this long for another
  // No request is slowed beyond this share by the draft rows of others in its steps.
  double spec_max_slowdown = 0.25;
  // Text of earlier requests that n-grams may be found in; 0: a request's own text only.
  int64_t spec_corpus_bytes = 0;
  std::string draft_head;                               // a folder with an EAGLE-3 head
  bool shipped_head = false;                            // without one, use the head that comes with the program, if any
  std::string draft_model;                              // the file of a smaller model
  std::optional<DType> draft_dtype = DType::kQ8_0;      // of a head's matrices; none: as in its file
  bool force_draft = false;                             // a head that fails its probe is used all the same
  std::vector<step::AllReduceDelay> all_reduce_delays;  // of benches (step_runner.h)
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  ~Engine();

  Result<Response> Generate(const Request& request);

  // Makes the running Generate (or the next one, if none runs) return after its current round or chunk, with the text so
  // far; a running Prefill returns kInterrupted.
  void Interrupt() { interrupted_.store(true, std::memory_order_relaxed); }

  const tokenizer::Tokenizer& tokenizer() const;
  const std::string& chat_template() const;
  step::StepRunner& runner();
  const model::WeightSource& source() const;
  const EngineOptions& options() const;  // with the defaults filled in
  const LoadedDrafts& drafts() const;

  // Times a step of each width that a draft may have, and plain ones, once for the engine. Generate does it behind the
  // first tokens of a request that may draft, whose plain steps it has by then. Nothing may be in the cache.
  Status PrepareSpeculation();
  // The memory of times and acceptance of this kind of request: its own governor and ledger. Requires: not kNone.
  const spec::Governor& governor(Drafter drafter);

  // For benches: puts `tokens` into the cache as the start of the only sequence, and gives it pages to the end of the
  // context. No sampling.
  Status Prefill(std::span<const int32_t> tokens);

 private:
  struct State;
  struct Run;
  Engine();
  Status ProbeDraft();
  Status PrepareBehind(std::span<const int32_t> tokens, int plain_steps);
  Status CheckRequest(const Request& request) const;
  Status EnsurePages(int num_tokens);
  Status PrefillPrompt(Run& run);
  Status Round(Run& run);
  int Commit(Run& run, std::span<const int32_t> tokens);
  void Conclude(Run& run);
  Status StepFailure(int logits_idx) const;

  std::unique_ptr<State> s_;
  std::atomic<bool> interrupted_{false};
};

}  // namespace lockstep::engine
