#include "step/model_part.h"

#include <fmt/format.h>

#include "comm/group.h"
#include "model/config.h"
#include "model/formats/weight_source.h"

namespace lockstep::step {

ModelPart::ModelPart(std::shared_ptr<const model::WeightSource> s, const ModelPartOptions& o, model::ShardPlan p,
                     const SharedLayout& l)
    : source(std::move(s)), options(o), plan(std::move(p)), layout(l), ranks(plan.ranks.size()) {
  rope = model::MakeRopeTable(config(), options.context);
}

Result<std::unique_ptr<ModelPart>> ModelPart::Plan(std::shared_ptr<const model::WeightSource> source,
                                                   const ModelPartOptions& o, size_t begin, bool is_draft) {
  const model::ModelConfig& config = source->config();
  if (config.head_dim % kLanes != 0) {
    return Unsupported(fmt::format("head_dim {}: must be a multiple of {}", config.head_dim, kLanes));
  }
  if (IsQuantised(o.kv_dtype) && config.head_dim % kBlock != 0) {
    return InvalidArgument(fmt::format("--kv-cache-dtype q8_0: the model's head_dim is {}; it must be a multiple of {}",
                                       config.head_dim, kBlock));
  }
  LS_ASSIGN_OR_RETURN(model::ShardPlan plan, model::MakeShardPlan(config, o.tp));
  const SharedLayout layout(config, o.tp * o.threads, o.num_sequences, o.context, o.max_rows, begin, is_draft);
  return std::make_unique<ModelPart>(std::move(source), o, std::move(plan), layout);
}

Status ModelPart::BuildRank(int rank) {
  RankState& state = ranks[static_cast<size_t>(rank)];
  const model::RankShard& shard = plan.ranks[static_cast<size_t>(rank)];
  LS_ASSIGN_OR_RETURN(state.weights, model::RankWeights::Plan(*source, plan, rank));
  const model::ModelConfig& c = config();
  LS_ASSIGN_OR_RETURN(
      state.kv, kv::KvStore::Create({static_cast<int>(c.num_layers), options.num_sequences * layout.pages_per_sequence,
                                     shard.kv_heads.count(), static_cast<int>(c.head_dim), options.kv_dtype}));
  state.team =
      std::make_unique<model::TeamBuffers>(c, shard, options.max_rows, layout.pages_per_sequence, options.threads);
  if (!options.tap_layers.empty()) state.team->taps.Create(options.tap_layers, options.num_sequences, c.hidden);
  return OkStatus();
}

Status ModelPart::Load(comm::Member& member, std::byte* shared) {
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
  const model::GroupRange positions = model::ThreadGroups(layout.context, table_member, table_members);
  rope.Fill(positions.begin, positions.end);
  if (!member.SyncRank(comm::SyncOp::kVote)) return member.group().error();
  return OkStatus();
}

Result<std::unique_ptr<model::StepContext>> ModelPart::MakeContext(comm::Member& member, std::byte* shared,
                                                                   const kernels::CpuKernels& kernels,
                                                                   ModelPart* target) {
  RankState& state = ranks[static_cast<size_t>(member.rank())];
  model::StepContextOptions o = {};
  o.kernels = &kernels;
  o.member = &member;
  LS_ASSIGN_OR_RETURN(o.shared, comm::CpuShared::Create(layout.AllReduceArea(shared), comm::CpuShared::kMaxPartials,
                                                        layout.all_reduce_elems));
  o.config = &config();
  o.plan = &plan;
  o.weights = state.weights.get();
  o.rope = &rope;
  o.kv = &state.kv;
  o.team = state.team.get();
  if (target != nullptr) o.taps = &target->ranks[static_cast<size_t>(member.rank())].team->taps;
  o.max_rows = options.max_rows;
  o.all_reduce_delay_ticks = AllReduceDelayTicks(options.all_reduce_delays, options.max_rows);
  o.max_pages_per_sequence = layout.pages_per_sequence;
  return std::make_unique<model::StepContext>(o);
}

}  // namespace lockstep::step
