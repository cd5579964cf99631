// Loading an engine, and what it finds out about its drafts.
#include <fmt/format.h>

#include <algorithm>
#include <future>

#include "base/log.h"
#include "engine/engine_state.h"
#include "engine/head_probe.h"
#include "engine/load_tokenizer.h"
#include "engine/speculation.h"
#include "kv/page_pool.h"
#include "model/shard.h"
#include "spec/model_proposer.h"
#include "step/step_runner.h"
#include "tokenizer/tokenizer.h"
#include "topology/placement.h"

namespace lockstep::engine {
namespace {

constexpr int kMaxThreads = 128;

}  // namespace

Engine::State::State() = default;
Engine::State::~State() = default;

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

// A window of the text and a few nodes must fit.
Status CheckPositions(const LoadedDrafts& drafts) {
  constexpr uint32_t kLeast = 16;
  for (const auto& source : {drafts.head_source, drafts.model_source}) {
    if (source && source->config().context_length < kLeast) {
      return Unsupported(
          fmt::format("--draft-model: {} positions: at least {} are needed", source->config().context_length, kLeast));
    }
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
    static_assert(spec::kDraftWindow <= step::kMaxLogitsRows);
    draft.max_rows = step::kMaxLogitsRows;  // the probe wants as many; buffers that nobody uses take no memory
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
  // The tables take as long as the look at the machine and the drafts together, and neither needs the other. Ranks that
  // will be forked need a process without other threads, and one that has ended may still be counted: there one comes
  // after the other.
  auto building = std::async(options.process_ranks ? std::launch::deferred : std::launch::async | std::launch::deferred,
                             [&s] { return MakeTokenizer(*s.source->gguf()); });
  auto found = topology::DiscoverMachine();
  auto drafts = LoadDrafts(s.options, s.source);
  LS_ASSIGN_OR_RETURN(s.tokenizer, building.get());
  LS_ASSIGN_OR_RETURN(s.drafts, std::move(drafts));
  LS_RETURN_IF_ERROR(CheckPositions(s.drafts));
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
  AddDrafts(s.drafts, s.options, &step);
  LS_ASSIGN_OR_RETURN(s.runner, step::StepRunner::Create(s.source, step));
  s.pool = std::make_unique<kv::PagePool>(s.runner->num_pages());
  s.speculation = std::make_unique<Speculation>(s.options.spec_max_slowdown, s.options.spec_corpus_bytes, &s.drafts);
  LS_RETURN_IF_ERROR(engine->ProbeDraft());
  return engine;
}

// A head that somebody brought is held against the model once; one that comes with the program was, when it was made.
Status Engine::ProbeDraft() {
  if (s_->drafts.head < 0 || s_->drafts.shipped) return OkStatus();
  LS_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, s_->tokenizer->Encode(kProbeText));
  if (tokens.size() > static_cast<size_t>(s_->options.context)) tokens.resize(static_cast<size_t>(s_->options.context));
  const int positions = std::min(s_->options.context, s_->runner->draft_context(s_->drafts.head));
  if (std::min(static_cast<int>(tokens.size()), positions) <= kLeastProbes) return OkStatus();
  s_->pool->Shrink(0, &s_->pages);
  LS_RETURN_IF_ERROR(EnsurePages(static_cast<int>(tokens.size())));
  LS_ASSIGN_OR_RETURN(const double share, ProbeHead(*s_->runner, s_->drafts.head, kSequence, tokens));
  const std::string text = fmt::format("--draft-model {}: the head names {:.0f} % of the model's own next tokens",
                                       s_->options.draft_head, share * 100);
  if (share < kLeastAgreement && !s_->options.force_draft) {
    return InvalidArgument(
        fmt::format("{}; below {:.0f} % it is one for another model (--force-draft uses it all the same)", text,
                    kLeastAgreement * 100));
  }
  if (share < kLowAgreement) {
    LogWarning(text + ", which is little; drafting will seldom pay");
  } else {
    LogInfo(text);
  }
  return OkStatus();
}

const spec::Governor& Engine::governor(Drafter drafter) {
  return *s_->speculation->GovernorOf(drafter);
}

Status Engine::PrepareSpeculation() {
  s_->pool->Shrink(0, &s_->pages);
  constexpr int kPlainSteps = 8;
  return PrepareBehind({}, kPlainSteps);
}

Status Engine::PrepareBehind(std::span<const int32_t> tokens, int plain_steps) {
  const int committed = std::max(0, static_cast<int>(tokens.size()) - 1);
  const int room = std::min(s_->options.context - committed, kMaxSpecNodes + 1);
  LS_RETURN_IF_ERROR(EnsurePages(committed + room));
  return s_->speculation->Prepare({s_->runner.get(), kSequence, tokens, room}, plain_steps, interrupted_);
}

}  // namespace lockstep::engine
