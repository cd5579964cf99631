#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "engine/drafting.h"
#include "engine/load_tokenizer.h"
#include "tokenizer/stream_decoder.h"

namespace lockstep::engine {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A sequence that this engine runs; several come with the server.
constexpr int kSequence = 0;

}  // namespace

// The state of one Generate.
struct Engine::Run {
  Run(const Request& r, const step::SamplingSpec& s, FinishOptions finish_options, const tokenizer::Tokenizer& tokenizer,
      spec::Gate* gate_of_drafter)
      : request(r),
        sampling(s),
        finish(std::move(finish_options)),
        decoder(&tokenizer),
        gate(gate_of_drafter),
        drafting(r, tokenizer.vocab_size(), gate_of_drafter),
        tokens(r.prompt) {}

  const Request& request;
  step::SamplingSpec sampling;
  FinishTracker finish;
  tokenizer::StreamDecoder decoder;
  spec::Gate* gate;
  Drafting drafting;
  std::vector<int32_t> tokens;  // prompt and output
  int committed = 0;            // keys in the cache
  step::DraftTree tree;
  step::WalkResult walk;
  std::vector<step::KvMove> moves;
  Response response;
};

Result<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  auto engine = std::unique_ptr<Engine>(new Engine());
  LS_ASSIGN_OR_RETURN(std::shared_ptr<const model::WeightSource> source, model::OpenGgufWeights(options.model_path));
  engine->source_ = std::move(source);
  LS_ASSIGN_OR_RETURN(tokenizer::TokenizerSpec spec, TokenizerSpecOf(*engine->source_->gguf()));
  LS_ASSIGN_OR_RETURN(engine->tokenizer_, tokenizer::Tokenizer::Create(std::move(spec)));
  engine->chat_template_ = ChatTemplateOf(*engine->source_->gguf());

  const int trained = static_cast<int>(std::min<uint32_t>(engine->source_->config().context_length, 1u << 30));
  step::StepOptions step_options = options.step;
  if (step_options.context == 0) step_options.context = std::min(trained, 4096);
  if (step_options.context > trained) {
    return InvalidArgument(fmt::format("--ctx-size {}: the model was trained for {} positions", step_options.context, trained));
  }
  if (step_options.context < 1) return InvalidArgument(fmt::format("--ctx-size {}: must be at least 1", step_options.context));
  if (options.prefill_chunk < 1 || options.prefill_chunk > step::kMaxStepRows) {
    return InvalidArgument(fmt::format("--chunked-prefill-size {}: must be 1 to {}", options.prefill_chunk, step::kMaxStepRows));
  }
  engine->prefill_chunk_ = options.prefill_chunk;
  step_options.max_rows = std::max(options.prefill_chunk, step::kMaxTreeRows);
  LS_ASSIGN_OR_RETURN(engine->runner_, step::StepRunner::Create(engine->source_, step_options));
  engine->pool_ = std::make_unique<kv::PagePool>(engine->runner_->num_pages());
  return engine;
}

Status Engine::CheckRequest(const Request& request) const {
  const auto vocab = static_cast<int32_t>(source_->config().vocab);
  if (request.prompt.empty()) return InvalidArgument("the prompt has no tokens");
  for (int32_t id : request.prompt) {
    if (id < 0 || id >= vocab) return InvalidArgument(fmt::format("prompt token {}: the vocabulary has {}", id, vocab));
  }
  if (static_cast<int>(request.prompt.size()) > context()) {
    return InvalidArgument(fmt::format("the prompt has {} tokens, the context {} (--ctx-size)", request.prompt.size(), context()));
  }
  if (request.max_tokens < -1) return InvalidArgument(fmt::format("-n {}: must be -1 (no limit) or more", request.max_tokens));
  return OkStatus();
}

Status Engine::EnsurePages(int num_tokens) {
  const size_t before = pages_.size();
  LS_RETURN_IF_ERROR(pool_->Grow(num_tokens, &pages_));
  std::copy(pages_.begin() + static_cast<std::ptrdiff_t>(before), pages_.end(),
            runner_->page_table(kSequence) + before);
  return OkStatus();
}

void Engine::FillSequence(step::StepInput& in, const Run& run) {
  step::StepSequence& s = in.sequences[in.num_sequences - 1];
  s.sampling = run.sampling;
  s.num_prompt_tokens = static_cast<int32_t>(run.request.prompt.size());
  s.num_output_tokens = static_cast<int32_t>(run.tokens.size() - run.request.prompt.size());
}

Status Engine::StepFailure(int logits_idx) const {
  const int layer = runner_->output().bad_layer[logits_idx];
  const bool at_end = layer >= static_cast<int>(source_->config().num_layers);
  return Internal(fmt::format("step {}: the numbers are no longer finite from {} on", runner_->num_steps(),
                              at_end ? "the output layer" : fmt::format("layer {}", layer)));
}

Status Engine::PrefillPrompt(Run& run) {
  const std::vector<int32_t>& prompt = run.request.prompt;
  const int total = static_cast<int>(prompt.size());
  std::copy(prompt.begin(), prompt.end(), runner_->history(kSequence));
  LS_RETURN_IF_ERROR(EnsurePages(total));
  for (int at = 0; at < total;) {
    const int n = std::min(prefill_chunk_, total - at);
    step::StepInput& in = runner_->input();
    step::AddPrefill(in, kSequence, std::span(prompt).subspan(static_cast<size_t>(at), static_cast<size_t>(n)), at,
                     at + n == total, runner_->pages_per_sequence());
    FillSequence(in, run);
    runner_->watch().Stamp(trace::Owner::kSchedule);
    LS_RETURN_IF_ERROR(runner_->Run());
    at += n;
    run.committed = at;
    if (interrupted_.load(std::memory_order_relaxed) && at < total) return OkStatus();
  }
  const int32_t token = runner_->output().tokens[0];
  if (token < 0) return StepFailure(0);
  return Commit(run, std::span(&token, 1));
}

// Emits tokens one at a time, so that a stop inside a round ends it exactly where plain decoding would.
Status Engine::Commit(Run& run, std::span<const int32_t> tokens) {
  size_t taken = 0;
  for (int32_t token : tokens) {
    const std::string piece = run.decoder.Push(token);
    const Verdict verdict = run.finish.Push(token, piece);
    runner_->history(kSequence)[run.tokens.size()] = token;
    run.tokens.push_back(token);
    run.response.token_ids.push_back(token);
    ++taken;
    if (verdict.finished) break;
  }
  run.drafting.Observe(tokens.first(taken));
  if (run.request.on_text) {
    const std::string text = run.finish.TakeText();
    if (!text.empty()) run.request.on_text(text);
  }
  return OkStatus();
}

Status Engine::Round(Run& run) {
  DecodeStats& stats = run.response.stats;
  const int vocab_limit = static_cast<int>(run.tokens.size());
  // The root takes one slot; a row deeper than the tokens still wanted cannot be emitted.
  int64_t room = context() - run.committed - 1;
  if (run.request.max_tokens >= 0) {
    room = std::min(room, run.request.max_tokens - static_cast<int64_t>(run.response.token_ids.size()) - 1);
  }
  auto start = Clock::now();
  run.drafting.Propose(run.tokens, static_cast<int>(std::clamp<int64_t>(room, 0, step::kMaxTreeNodes)), &run.tree);
  const double draft_secs = Since(start);
  runner_->watch().Stamp(trace::Owner::kDraft);
  const int rows = run.tree.num_rows();
  LS_RETURN_IF_ERROR(EnsurePages(run.committed + rows));
  step::StepInput& in = runner_->input();
  step::AddTree(in, kSequence, run.tree, run.committed, runner_->pages_per_sequence());
  FillSequence(in, run);
  for (const step::KvMove& move : run.moves) {
    in.copies[in.num_copies++] = {kSequence, move.from_row, move.to_row};
  }
  run.moves.clear();
  runner_->watch().Stamp(trace::Owner::kSchedule);
  auto step_start = Clock::now();
  LS_RETURN_IF_ERROR(runner_->Run());
  const double step_secs = Since(step_start);

  run.walk = step::Walk(run.tree, std::span(runner_->output().tokens, static_cast<size_t>(rows)));
  if (run.walk.num_emitted == 0) return StepFailure(0);
  run.moves.resize(static_cast<size_t>(run.walk.num_emitted));
  run.moves.resize(static_cast<size_t>(step::CompactionMoves(run.walk, run.moves)));
  for (step::KvMove& move : run.moves) {  // rows of this round -> slots of the sequence
    move.from_row += run.committed;
    move.to_row += run.committed;
  }
  const int emitted = run.walk.num_emitted;
  LS_RETURN_IF_ERROR(Commit(run, std::span(run.walk.tokens, static_cast<size_t>(emitted))));
  run.committed += emitted;
  LS_CHECK_GT(static_cast<int>(run.tokens.size()), vocab_limit);
  if (run.walk.failed_row >= 0 && !run.finish.verdict().finished) return StepFailure(run.walk.failed_row);

  stats.draft_secs += draft_secs;
  if (rows == 1) {
    ++stats.plain_steps;
    stats.plain_secs += step_secs;
    run.gate->ReportPlain(draft_secs + step_secs);
    return OkStatus();
  }
  ++stats.rounds;
  stats.tokens_of_rounds += emitted;
  stats.verify_secs += step_secs;
  stats.draft_rows += run.tree.num_nodes;
  stats.accepted_rows += run.walk.num_accepted();
  auto& width = stats.by_width[static_cast<size_t>(rows)];
  width.accepted += run.walk.num_accepted();
  width.rejected += run.tree.num_nodes - run.walk.num_accepted();
  run.gate->ReportRound(rows, emitted, Since(start));
  return OkStatus();
}

Result<Response> Engine::Generate(const Request& request) {
  interrupted_.store(false, std::memory_order_relaxed);
  LS_RETURN_IF_ERROR(CheckRequest(request));
  LS_ASSIGN_OR_RETURN(step::SamplingSpec sampling,
                      step::MakeSamplingSpec(request.sampling, static_cast<int>(source_->config().vocab)));
  FinishOptions finish;
  finish.eos_ids = tokenizer_->eos_ids();
  finish.stop_token_ids = request.stop_token_ids;
  finish.stop_strings = request.stop_strings;
  finish.max_tokens = request.max_tokens;
  finish.context_room = context() - static_cast<int64_t>(request.prompt.size());
  finish.ignore_eos = request.ignore_eos;
  LS_RETURN_IF_ERROR(ValidateFinish(finish, static_cast<int>(source_->config().vocab)));

  Run run(request, sampling, std::move(finish), *tokenizer_, &gates_[static_cast<int>(request.drafter)]);
  run.response.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  pool_->Shrink(0, &pages_);
  Status status;
  if (!run.finish.verdict().finished) {
    auto start = Clock::now();
    status = PrefillPrompt(run);
    run.response.stats.time_to_first_token_secs = Since(start);
  }
  auto decode_start = Clock::now();
  while (status.ok() && !run.finish.verdict().finished && !interrupted_.load(std::memory_order_relaxed)) {
    status = Round(run);
  }
  run.response.stats.decode_secs = Since(decode_start);
  LS_RETURN_IF_ERROR(status);
  LS_RETURN_IF_ERROR(runner_->CheckAgreement());
  if (run.finish.verdict().finished) {
    run.response.finish_reason = FinishReasonName(run.finish.verdict().reason);
    // A character that the text broke off in; the tracker takes nothing more, so it is added here.
    const std::string tail = run.finish.verdict().reason == FinishReason::kLength ? run.decoder.Finish() : "";
    run.response.text = run.finish.text() + tail;
    if (request.on_text && !tail.empty()) request.on_text(tail);
  } else {
    run.response.finish_reason = "interrupted";
    const std::string rest = std::string(run.finish.held_text()) + run.decoder.Finish();
    run.response.text = run.finish.text() + rest;
    if (request.on_text && !rest.empty()) request.on_text(rest);
  }
  return std::move(run.response);
}

Status Engine::Prefill(std::span<const int32_t> tokens) {
  pool_->Shrink(0, &pages_);
  LS_RETURN_IF_ERROR(EnsurePages(context()));
  for (size_t at = 0; at < tokens.size();) {
    const size_t n = std::min(static_cast<size_t>(prefill_chunk_), tokens.size() - at);
    step::StepInput& in = runner_->input();
    step::AddPrefill(in, kSequence, tokens.subspan(at, n), static_cast<int>(at), false, runner_->pages_per_sequence());
    in.sequences[0].sampling = {};
    LS_RETURN_IF_ERROR(runner_->Run());
    at += n;
  }
  return OkStatus();
}

}  // namespace lockstep::engine
