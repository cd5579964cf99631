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
#include "model/formats/weight_source.h"
#include "model/rope_table.h"
#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"
#include "step/member_step.h"

namespace lockstep::step {
namespace {

enum Command : uint32_t { kStepEven = 1, kStepOdd = 2, kCheck = 3 };

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

// Set-up allocates; a member that runs out of memory must still vote, or the others would wait for it.
template <typename F>
Status CatchBadAlloc(F f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return OutOfMemory("no memory for the buffers of a step");
  }
}

Result<device::cpu::CpuIsa> ChooseIsa(const std::string& text) {
  if (text.empty()) return device::cpu::BestIsa(device::cpu::Features());
  return device::cpu::ParseIsa(text);
}

}  // namespace

struct StepRunner::Impl {
  Impl(std::shared_ptr<const model::WeightSource> s, const StepOptions& o, model::ShardPlan p, const SharedLayout& l)
      : source(std::move(s)), options(o), plan(std::move(p)), layout(l), ranks(static_cast<size_t>(o.tp)) {}
  // The leader's thread is the caller's: it gets back the CPUs that it came with.
  ~Impl() {
    if (!caller_cpus.empty()) (void)device::cpu::PinThread(caller_cpus);
  }

  // What the threads of one rank share. In process mode each process fills its own only.
  struct RankState {
    Status status;
    std::unique_ptr<model::RankWeights> weights;
    std::unique_ptr<model::TeamBuffers> team;
    kv::KvStore kv;
  };

  Status BuildRank(int rank);
  Result<std::unique_ptr<MemberStep>> SetUp(comm::Member& member);
  Status MakeMemberStep(comm::Member& member, RankState& state, std::unique_ptr<MemberStep>* step);
  Status MemberMain(comm::Member& member);
  Status RunCommand(uint32_t command, const char* what);

  std::shared_ptr<const model::WeightSource> source;
  StepOptions options;
  model::ShardPlan plan;
  SharedLayout layout;
  const kernels::CpuKernels* kernels = nullptr;
  model::RopeTable rope;
  std::vector<RankState> ranks;
  std::byte* shared = nullptr;
  std::unique_ptr<comm::RankPool> pool;
  std::unique_ptr<MemberStep> leader;
  std::vector<int> caller_cpus;  // before the leader was pinned; empty: it was not
  uint64_t num_steps = 0;
  std::vector<trace::StepBreakdown> taken;  // by member, at the last TakeBreakdowns
};

Status StepRunner::Impl::BuildRank(int rank) {
  RankState& state = ranks[static_cast<size_t>(rank)];
  const model::RankShard& shard = plan.ranks[static_cast<size_t>(rank)];
  LS_ASSIGN_OR_RETURN(state.weights, model::RankWeights::Plan(*source, plan, rank));
  const model::ModelConfig& c = source->config();
  LS_ASSIGN_OR_RETURN(
      state.kv, kv::KvStore::Create({static_cast<int>(c.num_layers), options.num_sequences * layout.pages_per_sequence,
                                     shard.kv_heads.count(), static_cast<int>(c.head_dim), options.kv_dtype}));
  state.team =
      std::make_unique<model::TeamBuffers>(c, shard, options.max_rows, layout.pages_per_sequence, options.threads);
  return OkStatus();
}

Result<std::unique_ptr<MemberStep>> StepRunner::Impl::SetUp(comm::Member& member) {
  if (!options.cpus.empty()) {
    const int cpu = options.cpus[static_cast<size_t>(member.rank())][static_cast<size_t>(member.thread())];
    // A refused pin costs speed, never results.
    if (Status pinned = device::cpu::PinThread(cpu); !pinned.ok() && member.is_leader()) LogWarning(pinned.message());
  }
  RankState& state = ranks[static_cast<size_t>(member.rank())];
  if (member.thread() == 0) {
    state.status = CatchBadAlloc([&] { return BuildRank(member.rank()); });
    if (state.status.ok()) *layout.WeightBytes(shared, member.rank()) = state.weights->bytes_read_per_step();
  }
  if (!member.SyncRank(comm::SyncOp::kVote)) return member.group().error();
  if (!state.status.ok()) return state.status;
  state.weights->PackShare(*source, member.thread(), member.threads_per_rank());
  // One table for all threads of a process: of all ranks, or of this one. The vote of all ends its making.
  const bool by_process = options.rank_mode == comm::RankMode::kProcess;
  const int table_members = (by_process ? 1 : options.tp) * options.threads;
  const int table_member = (by_process ? 0 : member.rank() * options.threads) + member.thread();
  const model::GroupRange positions = model::ThreadGroups(options.context, table_member, table_members);
  rope.Fill(positions.begin, positions.end);
  if (!member.SyncRank(comm::SyncOp::kVote)) return member.group().error();

  std::unique_ptr<MemberStep> step;
  LS_RETURN_IF_ERROR(CatchBadAlloc([&] { return MakeMemberStep(member, state, &step); }));
  return step;
}

Status StepRunner::Impl::MakeMemberStep(comm::Member& member, RankState& state, std::unique_ptr<MemberStep>* step) {
  model::StepContextOptions o = {};
  o.kernels = kernels;
  o.member = &member;
  LS_ASSIGN_OR_RETURN(o.shared, comm::CpuShared::Create(layout.AllReduceArea(shared), comm::CpuShared::kMaxPartials,
                                                        layout.all_reduce_elems));
  o.config = &source->config();
  o.plan = &plan;
  o.weights = state.weights.get();
  o.rope = &rope;
  o.kv = &state.kv;
  o.team = state.team.get();
  o.max_rows = options.max_rows;
  o.max_pages_per_sequence = layout.pages_per_sequence;
  const int num_tokens = options.num_tokens > 0 ? options.num_tokens : static_cast<int>(source->config().vocab);
  *step = std::make_unique<MemberStep>(std::make_unique<model::StepContext>(o), layout, shared, num_tokens);
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
    bool ok = command == kCheck ? (*mine)->CheckAgreement() : (*mine)->Run(command == kStepEven ? 0 : 1);
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
  const model::ModelConfig& config = source->config();
  if (config.head_dim % kLanes != 0) {
    return Unsupported(fmt::format("head_dim {}: must be a multiple of {}", config.head_dim, kLanes));
  }
  if (IsQuantised(o.kv_dtype) && config.head_dim % kBlock != 0) {
    return InvalidArgument(fmt::format("--kv-cache-dtype q8_0: the model's head_dim is {}; it must be a multiple of {}",
                                       config.head_dim, kBlock));
  }
  if (o.threads < 1) return InvalidArgument(fmt::format("--threads {}: must be at least 1", o.threads));
  LS_ASSIGN_OR_RETURN(model::ShardPlan plan, model::MakeShardPlan(config, o.tp));
  SharedLayout layout(config, o.tp * o.threads, o.num_sequences, o.context, o.max_rows);
  auto impl = std::make_unique<Impl>(std::move(source), o, std::move(plan), layout);
  const std::string& isa_text = o.cpu_isa.empty() ? Env::Get().cpu_isa : o.cpu_isa;
  LS_ASSIGN_OR_RETURN(device::cpu::CpuIsa isa, ChooseIsa(isa_text));
  impl->kernels = &KernelsOf(isa);
  impl->rope = model::MakeRopeTable(impl->source->config(), o.context);

  if (!o.cpus.empty()) {
    LS_ASSIGN_OR_RETURN(impl->caller_cpus, device::cpu::AllowedCpus());
  }

  comm::GroupOptions group;
  group.world_size = o.tp;
  group.threads_per_rank = o.threads;
  group.mode = o.rank_mode;
  group.shared_bytes = layout.total_bytes;
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
  runner->input().num_rows = 0;
  return runner;
}

const model::ModelConfig& StepRunner::config() const {
  return impl_->source->config();
}
const StepOptions& StepRunner::options() const {
  return impl_->options;
}
const char* StepRunner::isa_name() const {
  return impl_->kernels->name;
}

StepInput& StepRunner::input() {
  return *impl_->layout.Input(impl_->shared, static_cast<int>(impl_->num_steps % 2));
}

int32_t* StepRunner::history(int sequence) {
  return impl_->layout.History(impl_->shared, sequence);
}
int32_t* StepRunner::page_table(int sequence) {
  return impl_->layout.Pages(impl_->shared) + sequence * impl_->layout.pages_per_sequence;
}
int StepRunner::num_pages() const {
  return impl_->options.num_sequences * impl_->layout.pages_per_sequence;
}
uint64_t StepRunner::num_steps() const {
  return impl_->num_steps;
}
int StepRunner::pages_per_sequence() const {
  return impl_->layout.pages_per_sequence;
}

Status StepRunner::Run() {
  Impl& m = *impl_;
  StepInput& in = input();
  LS_CHECK_GE(in.num_rows, 1);
  LS_CHECK_LE(in.num_rows, m.options.max_rows);
  const int parity = static_cast<int>(m.num_steps % 2);
  in.step = m.num_steps++;
  comm::Member& member = m.pool->leader();
  member.PostCommand(parity == 0 ? kStepEven : kStepOdd);
  if (!m.leader->Run(parity)) return member.group().error();
  StepInput& next = input();
  next.num_rows = next.num_sequences = next.num_logits_rows = next.num_copies = 0;
  return OkStatus();
}

Status StepRunner::CheckAgreement() {
  comm::Member& member = impl_->pool->leader();
  member.PostCommand(kCheck);
  if (!impl_->leader->CheckAgreement()) return member.group().error();
  return OkStatus();
}

const StepOutput& StepRunner::output() const {
  return *impl_->layout.Output(impl_->shared);
}

std::span<const float> StepRunner::logits(int logits_idx) const {
  return {impl_->layout.Logits(impl_->shared) + logits_idx * impl_->layout.ld_logits, config().vocab};
}

trace::Stopwatch& StepRunner::watch() {
  return impl_->leader->context().watch();
}

std::vector<trace::StepBreakdown> StepRunner::TakeBreakdowns() {
  Impl& m = *impl_;
  // The others write theirs after the last sync of their step: one more sync, and all are there.
  (void)CheckAgreement();
  std::vector<trace::StepBreakdown> since;
  for (size_t i = 0; i < m.taken.size(); ++i) {
    // The leader stamps between steps too; the others' latest words lie in shared memory since their last step.
    trace::StepBreakdown now = i == 0 ? watch().breakdown() : *m.layout.Breakdown(m.shared, static_cast<int>(i));
    trace::StepBreakdown diff = now;
    for (size_t owner = 0; owner < diff.ticks.size(); ++owner) diff.ticks[owner] -= m.taken[i].ticks[owner];
    diff.num_steps -= m.taken[i].num_steps;
    since.push_back(diff);
    m.taken[i] = now;
  }
  return since;
}

StepCensus StepRunner::census() const {
  return impl_->leader->census();
}

StepTraffic StepRunner::Traffic(int context, int rows, int logits_rows) const {
  const Impl& m = *impl_;
  StepTraffic traffic;
  int64_t kv_heads = 0;  // of all ranks: two ranks may hold the same head
  for (int rank = 0; rank < m.options.tp; ++rank) {
    traffic.weights += *m.layout.WeightBytes(m.shared, rank);
    kv_heads += m.plan.ranks[static_cast<size_t>(rank)].kv_heads.count();
  }
  const int64_t token_bytes = kv_heads * 2 * m.ranks[0].kv.row_bytes() * config().num_layers;
  traffic.kv = token_bytes * (context + rows);
  traffic.rows = token_bytes * rows + int64_t{logits_rows} * config().vocab * static_cast<int64_t>(sizeof(float));
  return traffic;
}

Status StepRunner::Stop() {
  if (!impl_->pool) return OkStatus();
  return impl_->pool->Join();
}

}  // namespace lockstep::step
