#include "step/model_part.h"

#include <fmt/format.h>

#include "comm/group.h"
#include "kv/kv_store.h"
#include "model/config.h"
#include "model/formats/weight_source.h"
#include "model/rope_table.h"
#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"

namespace lockstep::step {

struct ModelPart::State {
  // What the threads of one rank share. In process mode each process fills its own only.
  struct Rank {
    Status status;
    std::unique_ptr<model::RankWeights> weights;
    std::unique_ptr<model::TeamBuffers> team;
    kv::KvStore kv;
  };
  model::ShardPlan plan;
  model::RopeTable rope;
  std::vector<Rank> ranks;
};

ModelPart::ModelPart(std::shared_ptr<const model::WeightSource> source, const ModelPartOptions& options,
                     const model::ShardPlan& plan, const SharedLayout& layout)
    : source_(std::move(source)),
      options_(options),
      layout_(layout),
      state_(new State{plan, model::MakeRopeTable(source_->config(), options.context), {}}) {
  state_->ranks.resize(plan.ranks.size());
}

ModelPart::~ModelPart() = default;

const model::ModelConfig& ModelPart::config() const {
  return source_->config();
}

int ModelPart::num_kv_heads() const {
  int num = 0;
  for (const model::RankShard& shard : state_->plan.ranks) num += shard.kv_heads.count();
  return num;
}

int64_t ModelPart::kv_row_bytes() const {
  return state_->ranks[0].kv.row_bytes();
}

model::Taps& ModelPart::taps(int rank) {
  return state_->ranks[static_cast<size_t>(rank)].team->taps;
}

Result<std::unique_ptr<ModelPart>> ModelPart::Plan(std::shared_ptr<const model::WeightSource> source,
                                                   const ModelPartOptions& o, size_t begin, bool is_draft) {
  const model::ModelConfig& config = source->config();
  if (config.head_dim % kLanes != 0) {
    return Unsupported(fmt::format("head_dim {}: must be a multiple of {}", config.head_dim, kLanes));
  }
  if (config.arch == model::kHeadArch && (config.hidden % kLanes != 0 || config.eagle3.target_hidden % kLanes != 0)) {
    return Unsupported(fmt::format("hidden sizes {} and {} of head and model: must be multiples of {}", config.hidden,
                                   config.eagle3.target_hidden, kLanes));
  }
  if (IsQuantised(o.kv_dtype) && config.head_dim % kBlock != 0) {
    return InvalidArgument(fmt::format("--kv-cache-dtype q8_0: the model's head_dim is {}; it must be a multiple of {}",
                                       config.head_dim, kBlock));
  }
  LS_ASSIGN_OR_RETURN(model::ShardPlan plan,
                      is_draft ? model::MakeDraftPlan(config, o.tp) : model::MakeShardPlan(config, o.tp));
  const SharedLayout layout(config, o.tp * o.threads, o.num_sequences, o.context, o.max_rows, begin, is_draft);
  return std::make_unique<ModelPart>(std::move(source), o, plan, layout);
}

Status ModelPart::BuildRank(int rank) {
  State::Rank& state = state_->ranks[static_cast<size_t>(rank)];
  const model::RankShard& shard = state_->plan.ranks[static_cast<size_t>(rank)];
  LS_ASSIGN_OR_RETURN(state.weights, model::RankWeights::Plan(*source_, state_->plan, rank));
  const model::ModelConfig& c = config();
  LS_ASSIGN_OR_RETURN(
      state.kv,
      kv::KvStore::Create({static_cast<int>(c.num_layers), options_.num_sequences * layout_.pages_per_sequence,
                           shard.kv_heads.count(), static_cast<int>(c.head_dim), options_.kv_dtype}));
  state.team =
      std::make_unique<model::TeamBuffers>(c, shard, options_.max_rows, layout_.pages_per_sequence, options_.threads);
  if (!options_.tap_layers.empty()) state.team->taps.Create(options_.tap_layers, options_.num_sequences, c.hidden);
  return OkStatus();
}

Status ModelPart::Load(comm::Member& member, std::byte* shared) {
  State::Rank& state = state_->ranks[static_cast<size_t>(member.rank())];
  if (member.thread() == 0) {
    state.status = CatchBadAlloc([&] { return BuildRank(member.rank()); });
    if (state.status.ok()) *layout_.WeightBytes(shared, member.rank()) = state.weights->bytes_read_per_step();
  }
  if (!member.SyncRank(comm::SyncOp::kVote)) return member.group().error();
  if (!state.status.ok()) return state.status;
  state.weights->PackShare(*source_, member.thread(), member.threads_per_rank());
  // One table for all threads of a process: of all ranks, or of this one. The vote of all ends its making.
  const bool by_process = options_.rank_mode == comm::RankMode::kProcess;
  const int table_members = (by_process ? 1 : options_.tp) * options_.threads;
  const int table_member = (by_process ? 0 : member.rank() * options_.threads) + member.thread();
  const model::GroupRange positions = model::ThreadGroups(layout_.context, table_member, table_members);
  state_->rope.Fill(positions.begin, positions.end);
  if (!member.SyncRank(comm::SyncOp::kVote)) return member.group().error();
  return OkStatus();
}

Result<std::unique_ptr<model::StepContext>> ModelPart::MakeContext(comm::Member& member, std::byte* shared,
                                                                   const kernels::CpuKernels& kernels,
                                                                   ModelPart* target) {
  State::Rank& state = state_->ranks[static_cast<size_t>(member.rank())];
  model::StepContextOptions o = {};
  o.kernels = &kernels;
  o.member = &member;
  LS_ASSIGN_OR_RETURN(o.shared, comm::CpuShared::Create(layout_.AllReduceArea(shared), comm::CpuShared::kMaxPartials,
                                                        layout_.all_reduce_elems));
  o.config = &config();
  o.plan = &state_->plan;
  o.weights = state.weights.get();
  o.rope = &state_->rope;
  o.kv = &state.kv;
  o.team = state.team.get();
  if (target != nullptr) o.taps = &target->taps(member.rank());
  o.max_rows = options_.max_rows;
  o.all_reduce_delay_ticks = AllReduceDelayTicks(options_.all_reduce_delays, options_.max_rows);
  o.max_pages_per_sequence = layout_.pages_per_sequence;
  return std::make_unique<model::StepContext>(o);
}

}  // namespace lockstep::step
