#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>

#include "base/log.h"
#include "engine/drafting.h"
#include "engine/drafts.h"
#include "engine/load_tokenizer.h"
#include "engine/prompt_chunks.h"
#include "engine/speculation.h"
#include "kv/page_pool.h"
#include "model/formats/weight_source.h"
#include "model/shard.h"
#include "spec/model_proposer.h"
#include "step/step_runner.h"
#include "tokenizer/stream_decoder.h"
#include "topology/placement.h"

namespace lockstep::engine {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A sequence that this engine runs; several come with the server.
constexpr int kSequence = 0;
constexpr int kMaxThreads = 128;

}  // namespace

struct Engine::State {
  EngineOptions options;
  std::shared_ptr<const model::WeightSource> source;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::string chat_template;
  LoadedDrafts drafts;
  std::unique_ptr<step::StepRunner> runner;
  std::unique_ptr<kv::PagePool> pool;
  std::vector<int32_t> pages;  // of the only sequence
  std::unique_ptr<Speculation> speculation;
  PromptChunks chunks;
};

Engine::Engine() : s_(std::make_unique<State>()) {}
Engine::~Engine() = default;

const tokenizer::Tokenizer& Engine::tokenizer() const {
  return *s_->tokenizer;
}
const std::string& Engine::chat_template() const {
  return s_->chat_template;
}
step::StepRunner& Engine::runner() {
  return *s_->runner;
}
const model::WeightSource& Engine::source() const {
  return *s_->source;
}
const EngineOptions& Engine::options() const {
  return s_->options;
}
const LoadedDrafts& Engine::drafts() const {
  return s_->drafts;
}

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

namespace {

Result<std::unique_ptr<tokenizer::Tokenizer>> MakeTokenizer(const model::GgufFile& file) {
  LS_ASSIGN_OR_RETURN(tokenizer::TokenizerSpec spec, TokenizerSpecOf(file));
  return tokenizer::Tokenizer::Create(std::move(spec));
}

Status FillDefaults(const model::ModelConfig& config, EngineOptions* o) {
  const int trained = static_cast<int>(std::min<uint32_t>(config.context_length, 1u << 30));
  if (o->context == 0) o->context = std::min(trained, 4096);
  if (o->context < 1 || o->context > trained) {
    return InvalidArgument(fmt::format("--ctx-size {}: must be 1 to {}, the positions that the model was trained for",
                                       o->context, trained));
  }
  if (o->prefill_chunk < 1 || o->prefill_chunk > step::kMaxStepRows) {
    return InvalidArgument(
        fmt::format("--chunked-prefill-size {}: must be 1 to {}", o->prefill_chunk, step::kMaxStepRows));
  }
  if (o->threads < 0 || o->threads > kMaxThreads) {
    return InvalidArgument(fmt::format("--threads {}: must be 1 to {}", o->threads, kMaxThreads));
  }
  if (!(o->spec_max_slowdown >= 0 && o->spec_max_slowdown <= 1e6)) {
    return InvalidArgument(
        fmt::format("--spec-max-slowdown {}: must be a percentage of 0 or more", o->spec_max_slowdown * 100));
  }
  return OkStatus();
}

// Room for a draft's own nodes beyond the text; a head goes no further than it was trained for.
void AddDrafts(const LoadedDrafts& drafts, const EngineOptions& o, step::StepOptions* step) {
  constexpr int kOwnNodes = spec::kMaxDraftDepth * spec::kLevelRows;
  for (const auto& source : {drafts.head_source, drafts.model_source}) {
    if (!source) continue;
    step::DraftOptions draft;
    draft.source = source;
    draft.context = std::min<int>(static_cast<int>(std::min<uint32_t>(source->config().context_length, 1u << 30)),
                                  std::max(o.context, kOwnNodes) + kOwnNodes);
    draft.max_rows = spec::kDraftWindow;
    step->drafts.push_back(std::move(draft));
  }
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  auto engine = std::unique_ptr<Engine>(new Engine());
  State& s = *engine->s_;
  s.options = options;
  LS_ASSIGN_OR_RETURN(s.source, model::OpenGgufWeights(options.model_path));
  LS_RETURN_IF_ERROR(FillDefaults(s.source->config(), &s.options));
  // Before the tokenizer is built: a cut that cannot be is said at once.
  LS_RETURN_IF_ERROR(model::MakeShardPlan(s.source->config(), options.tp).status());
  // The tables take longer than the look at the machine, and neither needs the other. Ranks that will be forked need a
  // process without other threads, and one that has ended may still be counted: there one comes after the other.
  auto building = std::async(options.process_ranks ? std::launch::deferred : std::launch::async | std::launch::deferred,
                             [&s] { return MakeTokenizer(*s.source->gguf()); });
  auto found = topology::DiscoverMachine();
  LS_ASSIGN_OR_RETURN(s.tokenizer, building.get());
  LS_ASSIGN_OR_RETURN(topology::Machine machine, std::move(found));
  s.chat_template = ChatTemplateOf(*s.source->gguf());
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {  // megabytes that nobody reads again
    if (const model::GgufValue* value = s.source->gguf()->FindValue(key)) s.source->Drop(value->payload);
  }

  if (s.options.threads == 0) s.options.threads = std::max(1, machine.num_usable_cores() / s.options.tp);
  topology::Placement placement = topology::PlaceRanks(machine, s.options.tp, s.options.threads);
  if (!placement.warning.empty()) LogWarning(placement.warning);

  step::StepOptions step;
  step.tp = s.options.tp;
  step.threads = s.options.threads;
  step.rank_mode = options.process_ranks ? comm::RankMode::kProcess : comm::RankMode::kThread;
  step.oversubscribed = placement.oversubscribed;
  if (!placement.oversubscribed) step.cpus = placement.cpus;
  step.context = s.options.context;
  step.max_rows = std::max(s.options.prefill_chunk, step::kMaxTreeRows);
  step.kv_dtype = options.kv_dtype;
  step.num_tokens = std::min<int>(s.tokenizer->vocab_size(), static_cast<int>(s.source->config().vocab));
  step.timeout_secs = options.timeout_secs;
  step.all_reduce_delays = options.all_reduce_delays;
  LS_ASSIGN_OR_RETURN(s.drafts, LoadDrafts(s.options, s.source));
  AddDrafts(s.drafts, s.options, &step);
  LS_ASSIGN_OR_RETURN(s.runner, step::StepRunner::Create(s.source, step));
  s.pool = std::make_unique<kv::PagePool>(s.runner->num_pages());
  s.speculation = std::make_unique<Speculation>(s.options.spec_max_slowdown, s.options.spec_corpus_bytes, &s.drafts);
  return engine;
}

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

const spec::Governor& Engine::governor(Drafter drafter) {
  return *s_->speculation->GovernorOf(drafter);
}

Status Engine::PrepareSpeculation() {
  s_->pool->Shrink(0, &s_->pages);
  LS_RETURN_IF_ERROR(EnsurePages(std::min(s_->options.context, kMaxSpecNodes + 1)));
  return s_->speculation->Prepare(*s_->runner, kSequence, interrupted_);
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
  if (governed) LS_RETURN_IF_ERROR(PrepareSpeculation());
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
    status = Round(run);
  }
  run.response.stats.decode_secs = Since(decode_start);
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
