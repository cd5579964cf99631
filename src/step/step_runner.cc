#include "step/step_runner.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/bits.h"
#include "base/env.h"
#include "base/log.h"
#include "comm/rank_pool.h"
#include "device/cpu/affinity.h"
#include "device/cpu/features.h"
#include "kernels/cpu/kernels.h"
#include "kv/kv_store.h"
#include "model/config.h"
#include "model/formats/gguf.h"
#include "model/formats/weight_source.h"
#include "model/rope_table.h"
#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"
#include "step/member_step.h"
#include "step/model_part.h"

namespace lockstep::step {
namespace {

// Then two for each draft.
enum Command : uint32_t { kStepEven = 1, kStepOdd = 2, kCheck = 3, kDraftEven = 4 };

const kernels::CpuKernels& KernelsOf(device::cpu::CpuIsa isa) {
  switch (isa) {
    case device::cpu::CpuIsa::kAmx:
      return kernels::AmxKernels();
    case device::cpu::CpuIsa::kAvx512:
      return kernels::Avx512Kernels();
    case device::cpu::CpuIsa::kAvxVnni:
      return kernels::AvxVnniKernels();
    case device::cpu::CpuIsa::kAvx2:
      return kernels::Avx2Kernels();
    case device::cpu::CpuIsa::kGeneric:
      break;
  }
  return kernels::GenericKernels();
}

void ClearInput(StepInput& in) {
  in.num_rows = in.num_sequences = in.num_logits_rows = in.num_copies = 0;
  in.save_taps = in.num_path_rows = in.fused = in.hidden_out = 0;
}

Result<device::cpu::CpuIsa> ChooseIsa(const std::string& text) {
  if (text.empty()) return device::cpu::BestIsa(device::cpu::Features());
  return device::cpu::ParseIsa(text);
}

// What one member runs.
struct Program {
  std::unique_ptr<MemberStep> target;
  std::vector<std::unique_ptr<DraftStep>> drafts;
};

}  // namespace

struct StepRunner::Impl {
  explicit Impl(const StepOptions& o) : options(o) {}
  // The leader's thread is the caller's: it gets back the CPUs that it came with.
  ~Impl() {
    if (!caller_cpus.empty()) (void)device::cpu::PinThread(caller_cpus);
  }

  ModelPart& target() { return *parts[0]; }
  const ModelPart& target() const { return *parts[0]; }
  ModelPart& draft(int i) { return *parts[static_cast<size_t>(i) + 1]; }

  Result<Program> SetUp(comm::Member& member);
  Status MakeProgram(comm::Member& member, Program* program);
  Status MemberMain(comm::Member& member);

  StepOptions options;
  const kernels::CpuKernels* kernels = nullptr;
  std::vector<std::unique_ptr<ModelPart>> parts;  // the target, then the drafts
  std::byte* shared = nullptr;
  std::unique_ptr<comm::RankPool> pool;
  Program leader;
  std::vector<int> caller_cpus;             // before the leader was pinned; empty: it was not
  std::vector<trace::StepBreakdown> taken;  // by member, at the last TakeBreakdowns
};

Result<Program> StepRunner::Impl::SetUp(comm::Member& member) {
  if (!options.cpus.empty()) {
    const int cpu = options.cpus[static_cast<size_t>(member.rank())][static_cast<size_t>(member.thread())];
    // A refused pin costs speed, never results.
    if (Status pinned = device::cpu::PinThread(cpu); !pinned.ok() && member.is_leader()) LogWarning(pinned.message());
  }
  for (const auto& part : parts) LS_RETURN_IF_ERROR(part->Load(member, shared));
  Program program;
  LS_RETURN_IF_ERROR(CatchBadAlloc([&] { return MakeProgram(member, &program); }));
  return program;
}

Status StepRunner::Impl::MakeProgram(comm::Member& member, Program* program) {
  const auto vocab = static_cast<int>(target().config().vocab);
  const int num_tokens = options.num_tokens > 0 ? options.num_tokens : vocab;
  LS_ASSIGN_OR_RETURN(auto context, target().MakeContext(member, shared, *kernels, nullptr));
  program->target = std::make_unique<MemberStep>(std::move(context), target().layout(), shared, num_tokens);
  for (size_t i = 1; i < parts.size(); ++i) {
    ModelPart& part = *parts[i];
    LS_ASSIGN_OR_RETURN(context, part.MakeContext(member, shared, *kernels, &target()));
    program->drafts.push_back(std::make_unique<DraftStep>(std::move(context), part.layout(), shared,
                                                          part.config().eagle3.draft_to_target, num_tokens));
  }
  return OkStatus();
}

Status StepRunner::Impl::MemberMain(comm::Member& member) {
  auto mine = SetUp(member);
  Status vote = comm::Vote(member, mine.status());
  uint32_t command;
  if (!vote.ok()) {
    // The leader reports it and ends the group. Leaving before it has read the votes would look like another fault.
    while (member.WaitCommand(&command)) {
    }
    return OkStatus();
  }
  while (member.WaitCommand(&command)) {
    bool ok = false;
    if (command == kCheck) {
      ok = mine->target->CheckAgreement();
    } else if (command < kDraftEven) {
      ok = mine->target->Run(command == kStepEven ? 0 : 1);
    } else {
      ok = mine->drafts[(command - kDraftEven) / 2]->Run(static_cast<int>((command - kDraftEven) % 2));
    }
    if (!ok) break;
  }
  return OkStatus();
}

StepRunner::StepRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StepRunner::~StepRunner() {
  (void)Stop();
}

Result<std::unique_ptr<StepRunner>> StepRunner::Create(std::shared_ptr<const model::WeightSource> source,
                                                       const StepOptions& o) {
  if (o.threads < 1) return InvalidArgument(fmt::format("--threads {}: must be at least 1", o.threads));
  auto impl = std::make_unique<Impl>(o);
  ModelPartOptions of = {o.tp,       o.threads,  o.rank_mode, o.num_sequences,    o.context,
                         o.max_rows, o.kv_dtype, {},          o.all_reduce_delays};
  for (const DraftOptions& draft : o.drafts) {
    const model::ModelConfig& config = draft.source->config();
    if (config.arch == model::kHeadArch) of.tap_layers = config.eagle3.tap_layers;
  }
  LS_ASSIGN_OR_RETURN(auto part, ModelPart::Plan(std::move(source), of, 0, false));
  impl->parts.push_back(std::move(part));
  of.tap_layers.clear();
  for (const DraftOptions& draft : o.drafts) {
    of.context = draft.context;
    of.max_rows = draft.max_rows;
    of.kv_dtype = draft.kv_dtype;
    auto planned = ModelPart::Plan(draft.source, of, impl->parts.back()->layout().end, true);
    if (!planned.ok()) {
      const model::GgufFile* file = draft.source->gguf();
      return planned.status().WithContext(file == nullptr ? "draft head" : "draft model " + file->path());
    }
    impl->parts.push_back(std::move(planned).value());
  }
  const std::string& isa_text = o.cpu_isa.empty() ? Env::Get().cpu_isa : o.cpu_isa;
  LS_ASSIGN_OR_RETURN(device::cpu::CpuIsa isa, ChooseIsa(isa_text));
  impl->kernels = &KernelsOf(isa);

  if (!o.cpus.empty()) {
    LS_ASSIGN_OR_RETURN(impl->caller_cpus, device::cpu::AllowedCpus());
  }

  comm::GroupOptions group;
  group.world_size = o.tp;
  group.threads_per_rank = o.threads;
  group.mode = o.rank_mode;
  group.shared_bytes = impl->parts.back()->layout().end;
  group.timeout_secs = o.timeout_secs;
  group.oversubscribed = o.oversubscribed;
  group.fault = Env::Get().fault;
  LS_ASSIGN_OR_RETURN(auto made, comm::Group::Create(group));
  impl->shared = made->shared().data();
  Impl* raw = impl.get();
  LS_ASSIGN_OR_RETURN(impl->pool, comm::RankPool::Start(std::move(made), [raw](comm::Member& member) {
                        return raw->MemberMain(member);
                      }));
  auto mine = impl->SetUp(impl->pool->leader());
  LS_RETURN_IF_ERROR(comm::Vote(impl->pool->leader(), mine.status()));
  impl->leader = std::move(mine).value();
  impl->taken.resize(static_cast<size_t>(o.tp * o.threads));
  auto runner = std::unique_ptr<StepRunner>(new StepRunner(std::move(impl)));
  ClearInput(runner->input());
  for (int draft = 0; draft < runner->num_drafts(); ++draft) {
    ClearInput(runner->draft_input(draft));
    // Nobody shares a draft's pages: each sequence has all of its own.
    ModelPart& p = runner->impl_->draft(draft);
    int32_t* pages = p.layout().Pages(runner->impl_->shared);
    for (int i = 0; i < o.num_sequences * p.layout().pages_per_sequence; ++i) pages[i] = i;
  }
  return runner;
}

const model::ModelConfig& StepRunner::config() const {
  return impl_->target().config();
}
const StepOptions& StepRunner::options() const {
  return impl_->options;
}
const char* StepRunner::isa_name() const {
  return impl_->kernels->name;
}

StepInput& StepRunner::input() {
  return *impl_->target().layout().Input(impl_->shared, static_cast<int>(impl_->target().num_steps % 2));
}

int32_t* StepRunner::history(int sequence) {
  return impl_->target().layout().History(impl_->shared, sequence);
}
int32_t* StepRunner::page_table(int sequence) {
  return impl_->target().layout().Pages(impl_->shared) + sequence * impl_->target().layout().pages_per_sequence;
}
int StepRunner::num_pages() const {
  return impl_->options.num_sequences * impl_->target().layout().pages_per_sequence;
}
uint64_t StepRunner::num_steps() const {
  return impl_->target().num_steps;
}
int StepRunner::pages_per_sequence() const {
  return impl_->target().layout().pages_per_sequence;
}

Status StepRunner::Run() {
  Impl& m = *impl_;
  StepInput& in = input();
  LS_CHECK_GE(in.num_rows, 1);
  LS_CHECK_LE(in.num_rows, m.options.max_rows);
  const int parity = static_cast<int>(m.target().num_steps % 2);
  in.step = m.target().num_steps++;
  comm::Member& member = m.pool->leader();
  member.PostCommand(parity == 0 ? kStepEven : kStepOdd);
  if (!m.leader.target->Run(parity)) return member.group().error();
  ClearInput(input());
  return OkStatus();
}

int StepRunner::num_drafts() const {
  return static_cast<int>(impl_->parts.size()) - 1;
}
const model::ModelConfig& StepRunner::draft_config(int draft) const {
  return impl_->draft(draft).config();
}
int StepRunner::draft_context(int draft) const {
  return impl_->draft(draft).layout().context;
}
int StepRunner::draft_pages_per_sequence(int draft) const {
  return impl_->draft(draft).layout().pages_per_sequence;
}

StepInput& StepRunner::draft_input(int draft) {
  ModelPart& part = impl_->draft(draft);
  return *part.layout().Input(impl_->shared, static_cast<int>(part.num_steps % 2));
}

Status StepRunner::RunDraft(int draft) {
  Impl& m = *impl_;
  ModelPart& part = m.draft(draft);
  StepInput& in = draft_input(draft);
  LS_CHECK_GE(in.num_rows, 1);
  LS_CHECK_LE(in.num_rows, part.options().max_rows);
  LS_CHECK_LE(in.num_path_rows, model::kMaxPathRows);
  LS_CHECK_LE(in.hidden_out + in.num_logits_rows, model::kHiddenStates);
  const int parity = static_cast<int>(part.num_steps % 2);
  in.step = part.num_steps++;
  comm::Member& member = m.pool->leader();
  member.PostCommand(kDraftEven + 2 * static_cast<uint32_t>(draft) + static_cast<uint32_t>(parity));
  if (!m.leader.drafts[static_cast<size_t>(draft)]->Run(parity)) return member.group().error();
  ClearInput(draft_input(draft));
  return OkStatus();
}

int StepRunner::Candidates(int draft, int logits_idx, bool sampled, std::span<DraftCandidate> out) const {
  const Impl& m = *impl_;
  const SharedLayout& layout = impl_->draft(draft).layout();
  std::array<const DraftPart*, comm::kMaxMembers> parts;
  const int num = m.options.tp * m.options.threads;
  for (int i = 0; i < num; ++i) parts[static_cast<size_t>(i)] = layout.DraftParts(m.shared, i) + logits_idx;
  return MergeParts({parts.data(), static_cast<size_t>(num)}, sampled, out);
}

float* StepRunner::taps(int rank, int sequence, int slot) {
  return impl_->target().taps(rank).At(sequence, slot);
}

std::span<const float> StepRunner::draft_logits(int draft, int logits_idx) const {
  const SharedLayout& layout = impl_->draft(draft).layout();
  return {layout.Logits(impl_->shared) + logits_idx * layout.ld_logits, draft_config(draft).vocab};
}

Status StepRunner::CheckAgreement() {
  comm::Member& member = impl_->pool->leader();
  member.PostCommand(kCheck);
  if (!impl_->leader.target->CheckAgreement()) return member.group().error();
  return OkStatus();
}

const StepOutput& StepRunner::output() const {
  return *impl_->target().layout().Output(impl_->shared);
}

std::span<const float> StepRunner::logits(int logits_idx) const {
  return {impl_->target().layout().Logits(impl_->shared) + logits_idx * impl_->target().layout().ld_logits,
          config().vocab};
}

trace::Stopwatch& StepRunner::watch() {
  return impl_->leader.target->context().watch();
}

std::vector<trace::StepBreakdown> StepRunner::TakeBreakdowns() {
  Impl& m = *impl_;
  // The others write theirs after the last sync of their step: one more sync, and all are there.
  (void)CheckAgreement();
  std::vector<trace::StepBreakdown> since;
  for (size_t i = 0; i < m.taken.size(); ++i) {
    // The leader stamps between steps too; the others' latest words lie in shared memory since their last step.
    trace::StepBreakdown now =
        i == 0 ? watch().breakdown() : *m.target().layout().Breakdown(m.shared, static_cast<int>(i));
    trace::StepBreakdown diff = now;
    for (size_t owner = 0; owner < diff.ticks.size(); ++owner) diff.ticks[owner] -= m.taken[i].ticks[owner];
    diff.num_steps -= m.taken[i].num_steps;
    since.push_back(diff);
    m.taken[i] = now;
  }
  return since;
}

StepCensus StepRunner::census() const {
  return impl_->leader.target->census();
}

StepTraffic StepRunner::Traffic(int context, int rows, int logits_rows) const {
  const Impl& m = *impl_;
  StepTraffic traffic;
  for (int rank = 0; rank < m.options.tp; ++rank) traffic.weights += *m.target().layout().WeightBytes(m.shared, rank);
  const int64_t token_bytes = m.target().num_kv_heads() * 2 * m.target().kv_row_bytes() * config().num_layers;
  traffic.kv = token_bytes * (context + rows);
  traffic.rows = token_bytes * rows + int64_t{logits_rows} * config().vocab * static_cast<int64_t>(sizeof(float));
  return traffic;
}

Status StepRunner::Stop() {
  if (!impl_->pool) return OkStatus();
  return impl_->pool->Join();
}

}  // namespace lockstep::step
