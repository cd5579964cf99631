// The engine: a model, its tokenizer, its ranks, and the round that turns a prompt into text.
//
// Units:    tokens; seconds
// Errors:   Create: as loading (kNotFound, kCorruptFile, kUnsupported), cutting (kInvalidArgument) and memory say
//           Generate: kInvalidArgument for a request that cannot be (names the field); kPeerLost, kTimeout for ranks;
//           kInternal when the model's numbers stop being finite (names step and layer)
// Threads:  one caller; Interrupt from any thread or signal handler
// Order:    the text is a function of model, prompt, sampling, seed and kv type, and of nothing else (docs/numerics.md)
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "kv/page_pool.h"
#include "spec/gate.h"
#include "step/step_runner.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::engine {

struct EngineOptions {
  std::string model_path;
  step::StepOptions step;     // context 0: min(model, 4096)
  int prefill_chunk = 512;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Create(const EngineOptions& options);

  Result<Response> Generate(const Request& request);

  // Makes the running Generate return after its current round, with the text so far.
  void Interrupt() { interrupted_.store(true, std::memory_order_relaxed); }

  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& chat_template() const { return chat_template_; }
  step::StepRunner& runner() { return *runner_; }
  const model::WeightSource& source() const { return *source_; }
  int context() const { return runner_->options().context; }

  // For benches: prefills `tokens` as the start of the only sequence; no sampling.
  Status Prefill(std::span<const int32_t> tokens);

 private:
  struct Run;
  Engine() = default;
  Status CheckRequest(const Request& request) const;
  Status EnsurePages(int num_tokens);
  Status PrefillPrompt(Run& run);
  Status Round(Run& run);
  Status Commit(Run& run, std::span<const int32_t> tokens);
  Status StepFailure(int logits_idx) const;
  void FillSequence(step::StepInput& in, const Run& run);

  std::shared_ptr<const model::WeightSource> source_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::string chat_template_;
  std::unique_ptr<step::StepRunner> runner_;
  std::unique_ptr<kv::PagePool> pool_;
  std::vector<int32_t> pages_;  // of the only sequence
  spec::Gate gates_[5];         // by Drafter: what rounds have cost here
  int prefill_chunk_ = 512;
  std::atomic<bool> interrupted_{false};
};

}  // namespace lockstep::engine
