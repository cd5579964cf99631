#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/drafting.h"
#include "engine/engine_state.h"
#include "engine/speculation.h"
#include "kv/page_pool.h"
#include "step/step_runner.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::engine {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

// The state of one Generate.
struct Engine::Run {
  // The request's part of the step whose rows were just added.
  void Describe(step::StepInput& in) const {
    step::StepSequence& sequence = in.sequences[in.num_sequences - 1];
    sequence.sampling = sampling;
    sequence.num_prompt_tokens = static_cast<int32_t>(request.prompt.size());
    sequence.num_output_tokens = static_cast<int32_t>(tokens.size() - request.prompt.size());
  }

  Run(const Request& r, const step::SamplingSpec& s, FinishOptions finish_options,
      const tokenizer::Tokenizer& tokenizer, const Drafting::Means& means)
      : request(r),
        sampling(s),
        finish(std::move(finish_options)),
        decoder(&tokenizer),
        drafting(r, means),
        tokens(r.prompt) {}

  const Request& request;
  step::SamplingSpec sampling;
  FinishTracker finish;
  tokenizer::StreamDecoder decoder;
  Drafting drafting;
  std::vector<int32_t> tokens;  // prompt and output
  int committed = 0;            // keys in the cache
  bool save_taps = false;       // a draft head may want them
  step::DraftTree tree;
  step::WalkResult walk;
  std::vector<step::KvMove> moves;
  std::vector<int32_t> path;  // rows of the tree that were accepted, the root not included
  Response response;
};

Status Engine::CheckRequest(const Request& request) const {
  const int32_t vocab = std::min(s_->tokenizer->vocab_size(), static_cast<int32_t>(s_->source->config().vocab));
  if (request.prompt.empty()) return InvalidArgument("the prompt has no tokens");
  for (int32_t id : request.prompt) {
    if (id < 0 || id >= vocab) return InvalidArgument(fmt::format("prompt token {}: the vocabulary has {}", id, vocab));
  }
  if (static_cast<int>(request.prompt.size()) > s_->options.context) {
    return InvalidArgument(fmt::format("the prompt has {} tokens, the context {} (--ctx-size)", request.prompt.size(),
                                       s_->options.context));
  }
  if (request.max_tokens < -1)
    return InvalidArgument(fmt::format("-n {}: must be -1 (no limit) or more", request.max_tokens));
  if (request.drafter == Drafter::kEagle3 && s_->drafts.head < 0)
    return InvalidArgument("--spec eagle3: no head is loaded; name one with --draft-model FOLDER");
  if (request.drafter == Drafter::kDraft && s_->drafts.model < 0)
    return InvalidArgument("--spec draft: no draft model is loaded; name one with --draft-model FILE");
  return OkStatus();
}

Status Engine::EnsurePages(int num_tokens) {
  const size_t before = s_->pages.size();
  LS_RETURN_IF_ERROR(s_->pool->Grow(num_tokens, &s_->pages));
  std::copy(s_->pages.begin() + static_cast<std::ptrdiff_t>(before), s_->pages.end(),
            s_->runner->page_table(kSequence) + before);
  return OkStatus();
}

Status Engine::StepFailure(int logits_idx) const {
  const int layer = s_->runner->output().bad_layer[logits_idx];
  const bool at_end = layer >= static_cast<int>(s_->source->config().num_layers);
  return Internal(fmt::format("step {}: the numbers are no longer finite from {} on", s_->runner->num_steps() - 1,
                              at_end ? "the output layer" : fmt::format("layer {}", layer)));
}

Status Engine::PrefillPrompt(Run& run) {
  const std::vector<int32_t>& prompt = run.request.prompt;
  const int total = static_cast<int>(prompt.size());
  std::copy(prompt.begin(), prompt.end(), s_->runner->history(kSequence));
  LS_RETURN_IF_ERROR(EnsurePages(total));
  for (int at = 0; at < total;) {
    const int n = s_->chunks.Rows(total - at, s_->options.prefill_chunk);
    auto start = Clock::now();
    step::StepInput& in = s_->runner->input();
    step::AddPrefill(in, kSequence, std::span(prompt).subspan(static_cast<size_t>(at), static_cast<size_t>(n)), at,
                     at + n == total, s_->runner->pages_per_sequence());
    run.Describe(in);
    in.save_taps = run.save_taps;
    s_->runner->watch().Stamp(trace::Owner::kSchedule);
    LS_RETURN_IF_ERROR(s_->runner->Run());
    s_->chunks.Report(n, s_->options.prefill_chunk, Since(start));
    at += n;
    run.committed = at;
    if (interrupted_.load(std::memory_order_relaxed) && at < total) return OkStatus();
  }
  const int32_t token = s_->runner->output().tokens[0];
  if (token < 0) return StepFailure(0);
  Commit(run, std::span(&token, 1));
  return OkStatus();
}

// Emits tokens one at a time, so that a stop inside a round ends it exactly where plain decoding would.
int Engine::Commit(Run& run, std::span<const int32_t> tokens) {
  size_t taken = 0;
  for (int32_t token : tokens) {
    const std::string piece = run.decoder.Push(token);
    const Verdict verdict = run.finish.Push(token, piece);
    s_->runner->history(kSequence)[run.tokens.size()] = token;
    run.tokens.push_back(token);
    run.response.token_ids.push_back(token);
    ++taken;
    if (verdict.finished) break;
  }
  if (run.request.on_text) {
    const std::string text = run.finish.TakeText();
    if (!text.empty()) run.request.on_text(text);
  }
  return static_cast<int>(taken);
}

Status Engine::Round(Run& run) {
  DecodeStats& stats = run.response.stats;
  // The root takes one slot; a row deeper than the tokens still wanted cannot be emitted.
  int64_t room = s_->options.context - run.committed - 1;
  if (run.request.max_tokens >= 0) {
    room = std::min(room, run.request.max_tokens - static_cast<int64_t>(run.response.token_ids.size()) - 1);
  }
  auto start = Clock::now();
  run.drafting.Propose(run.tokens, static_cast<int>(std::clamp<int64_t>(room, 0, step::kMaxTreeNodes)), run.moves,
                       &run.tree);
  const double draft_secs = Since(start);
  s_->runner->watch().Stamp(trace::Owner::kDraft);
  // A drafter's mistake would be a read outside the embedding.
  if (Status valid = step::ValidateTree(run.tree, s_->runner->options().num_tokens); !valid.ok()) {
    return Internal(fmt::format("--spec {}: {}", DrafterName(run.request.drafter), valid.message()));
  }
  const int rows = run.tree.num_rows();
  LS_RETURN_IF_ERROR(EnsurePages(run.committed + rows));
  step::StepInput& in = s_->runner->input();
  step::AddTree(in, kSequence, run.tree, run.committed, s_->runner->pages_per_sequence());
  run.Describe(in);
  in.save_taps = run.save_taps;
  for (const step::KvMove& move : run.moves) {
    in.copies[in.num_copies++] = {kSequence, move.from_row, move.to_row};
  }
  run.moves.clear();
  s_->runner->watch().Stamp(trace::Owner::kSchedule);
  auto step_start = Clock::now();
  LS_RETURN_IF_ERROR(s_->runner->Run());
  const double step_secs = Since(step_start);

  run.walk = step::Walk(run.tree, std::span(s_->runner->output().tokens, static_cast<size_t>(rows)));
  if (run.walk.num_emitted == 0) return StepFailure(0);
  run.moves.resize(static_cast<size_t>(run.walk.num_emitted));
  run.moves.resize(static_cast<size_t>(step::CompactionMoves(run.walk, run.moves)));
  for (step::KvMove& move : run.moves) {  // rows of this round -> slots of the sequence
    move.from_row += run.committed;
    move.to_row += run.committed;
  }
  run.path.assign(run.walk.rows + 1, run.walk.rows + run.walk.num_emitted);
  // What lies behind a stop or a limit was not emitted: the walk ends there too.
  run.walk.Truncate(Commit(run, std::span(run.walk.tokens, static_cast<size_t>(run.walk.num_emitted))));
  const int emitted = run.walk.num_emitted;
  run.committed += emitted;
  if (run.walk.failed_row >= 0 && !run.finish.verdict().finished) return StepFailure(run.walk.failed_row);

  stats.draft_secs += draft_secs;
  if (rows == 1) {
    ++stats.plain_steps;
    stats.plain_secs += step_secs;
  } else {
    ++stats.rounds;
    stats.tokens_of_rounds += emitted;
    stats.verify_secs += step_secs;
    stats.draft_rows += run.tree.num_nodes;
    stats.accepted_rows += run.walk.num_accepted();
    for (int depth = 1; depth <= run.walk.num_accepted(); ++depth) {
      ++stats.accepted_at[static_cast<size_t>(std::min(depth, spec::kMaxReportedDepth))];
    }
    stats.by_drafter[static_cast<size_t>(run.drafting.drafter())].Add({1, run.tree.num_nodes, run.walk.num_accepted()});
    auto& width = stats.by_width[static_cast<size_t>(rows)];
    width.accepted += run.walk.num_accepted();
    width.rejected += run.tree.num_nodes - run.walk.num_accepted();
  }
  run.drafting.Finish(emitted, run.path);
  return OkStatus();
}

Result<Response> Engine::Generate(const Request& request) {
  LS_RETURN_IF_ERROR(CheckRequest(request));
  LS_ASSIGN_OR_RETURN(step::SamplingSpec sampling,
                      step::MakeSamplingSpec(request.sampling, static_cast<int>(s_->source->config().vocab)));
  FinishOptions finish;
  finish.eos_ids = s_->tokenizer->eos_ids();
  finish.stop_token_ids = request.stop_token_ids;
  finish.stop_strings = request.stop_strings;
  finish.max_tokens = request.max_tokens;
  finish.context_room = s_->options.context - static_cast<int64_t>(request.prompt.size());
  finish.ignore_eos = request.ignore_eos;
  LS_RETURN_IF_ERROR(ValidateFinish(finish, static_cast<int>(s_->source->config().vocab)));

  const bool governed = Governed(request);
  spec::Governor* governor = governed ? s_->speculation->GovernorOf(request.drafter) : nullptr;
  const spec::Ledger before = governed ? governor->ledger() : spec::Ledger();
  Drafting::Means means;
  means.vocab = s_->tokenizer->vocab_size();
  means.governor = governor;
  means.corpus = s_->speculation->corpus();
  means.drafts = &s_->drafts;
  means.runner = s_->runner.get();
  means.clock = &s_->speculation->clock();
  means.sequence = kSequence;
  Run run(request, sampling, std::move(finish), *s_->tokenizer, means);
  const std::vector<Drafter> drafters = DraftersOf(request.drafter, s_->drafts);
  run.save_taps = std::find(drafters.begin(), drafters.end(), Drafter::kEagle3) != drafters.end();
  run.response.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  s_->pool->Shrink(0, &s_->pages);
  Status status;
  if (!run.finish.verdict().finished && !interrupted_.load(std::memory_order_relaxed)) {
    auto start = Clock::now();
    status = PrefillPrompt(run);
    run.response.stats.time_to_first_token_secs = Since(start);
  }
  auto decode_start = Clock::now();
  while (status.ok() && !run.finish.verdict().finished && !interrupted_.load(std::memory_order_relaxed)) {
    // Once an engine, when the plain steps of this text have said what one takes: a short answer never needs it.
    if (governed && !s_->speculation->prepared() && governor->plain().Known(1)) {
      auto prepare_start = Clock::now();
      status = PrepareBehind(run.tokens, 0);
      run.response.stats.prepare_secs += Since(prepare_start);
      if (!status.ok()) break;
    }
    status = Round(run);
  }
  run.response.stats.decode_secs = Since(decode_start) - run.response.stats.prepare_secs;
  // Only now: an interrupt that came before the first step counts for this request.
  interrupted_.store(false, std::memory_order_relaxed);
  LS_RETURN_IF_ERROR(status);
  LS_RETURN_IF_ERROR(s_->runner->CheckAgreement());
  run.response.stats.decoded_tokens = std::max<int64_t>(0, static_cast<int64_t>(run.response.token_ids.size()) - 1);
  if (governed) ReportLedger(*governor, before, &run.response.stats);
  if (spec::SuffixCorpus* corpus = s_->speculation->corpus()) corpus->Add(run.tokens);
  Conclude(run);
  return std::move(run.response);
}

// The end of the text: what the tracker still held, and a character that the text broke off in.
void Engine::Conclude(Run& run) {
  const Verdict& verdict = run.finish.verdict();
  run.response.finish_reason = verdict.finished ? FinishReasonName(verdict.reason) : "interrupted";
  run.response.FindContextFull(s_->options.context, run.request.max_tokens);
  std::string rest;
  if (!verdict.finished) rest = std::string(run.finish.held_text());
  // After a stop nothing may follow; else an unfinished character becomes one U+FFFD.
  if (verdict.reason != FinishReason::kStop) rest += run.decoder.Finish();
  run.response.text = run.finish.text() + rest;
  if (run.request.on_text && !rest.empty()) run.request.on_text(rest);
}

Status Engine::Prefill(std::span<const int32_t> tokens) {
  s_->pool->Shrink(0, &s_->pages);
  LS_RETURN_IF_ERROR(EnsurePages(s_->options.context));
  for (size_t at = 0; at < tokens.size();) {
    const auto n =
        static_cast<size_t>(s_->chunks.Rows(static_cast<int>(tokens.size() - at), s_->options.prefill_chunk));
    auto start = Clock::now();
    step::StepInput& in = s_->runner->input();
    step::AddPrefill(in, kSequence, tokens.subspan(at, n), static_cast<int>(at), false,
                     s_->runner->pages_per_sequence());
    in.sequences[0].sampling = {};
    LS_RETURN_IF_ERROR(s_->runner->Run());
    s_->chunks.Report(static_cast<int>(n), s_->options.prefill_chunk, Since(start));
    at += n;
    if (interrupted_.exchange(false, std::memory_order_relaxed)) return Status(StatusCode::kInterrupted, "interrupted");
  }
  return OkStatus();
}

}  // namespace lockstep::engine
