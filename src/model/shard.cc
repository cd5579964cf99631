#include "model/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/bits.h"
#include "base/law.h"

namespace lockstep::model {
namespace {

static_assert(CanonicalTree::kMaxLeaves == kMaxLeaves);

Result<ShardPlan> TryPlan(const ModelConfig& c, int world_size) {
  const int dh = static_cast<int>(c.head_dim), heads = static_cast<int>(c.num_heads);
  const int ffn = static_cast<int>(c.ffn);
  const int per_unit = kBlock / std::gcd(dh, kBlock);
  const bool is_head = c.arch == kHeadArch;
  const int fc = is_head ? static_cast<int>(c.eagle3.tap_layers.size() * c.eagle3.target_hidden) : 1;
  ShardPlan plan = {world_size,
                    per_unit,
                    CanonicalTree(CeilDiv(heads, per_unit)),
                    CanonicalTree(CeilDiv(ffn, kBlock)),
                    CanonicalTree(CeilDiv(fc, kBlock)),
                    {}};
  auto attention = plan.attention_tree.Share(world_size);
  if (!attention.ok()) {
    return InvalidArgument(
        fmt::format("{} query heads of {} elements are {} pieces", heads, dh, plan.attention_tree.leaves().size()));
  }
  auto mlp = plan.mlp_tree.Share(world_size);
  if (!mlp.ok()) {
    return InvalidArgument(fmt::format("an ffn of {} elements is {} pieces", ffn, plan.mlp_tree.leaves().size()));
  }
  std::vector<TreeShare> taps(static_cast<size_t>(world_size));
  if (is_head) {
    auto shares = plan.taps_tree.Share(world_size);
    if (!shares.ok()) {
      return InvalidArgument(fmt::format("taps of {} elements are {} pieces", fc, plan.taps_tree.leaves().size()));
    }
    taps = std::move(shares).value();
  }
  const int group = static_cast<int>(c.num_heads / c.num_kv_heads);
  const int vocab = static_cast<int>(c.vocab), vocab_groups = CeilDiv(vocab, 16);
  for (int r = 0; r < world_size; ++r) {
    RankShard shard;
    shard.attention = (*attention)[r];
    shard.mlp = (*mlp)[r];
    shard.q_heads = {shard.attention.units.begin * per_unit, std::min(heads, shard.attention.units.end * per_unit)};
    shard.kv_heads = {shard.q_heads.begin / group, CeilDiv(shard.q_heads.end, group)};
    shard.ffn = {shard.mlp.units.begin * kBlock, std::min(ffn, shard.mlp.units.end * kBlock)};
    shard.vocab = {std::min(vocab, vocab_groups * r / world_size * 16),
                   std::min(vocab, vocab_groups * (r + 1) / world_size * 16)};
    if (is_head) {
      shard.taps = std::move(taps[static_cast<size_t>(r)]);
      shard.fc = {shard.taps.units.begin * kBlock, std::min(fc, shard.taps.units.end * kBlock)};
    }
    plan.ranks.push_back(std::move(shard));
  }
  return plan;
}

}  // namespace

std::string SupportedWorldSizes(const ModelConfig& config) {
  std::string sizes;
  for (int w = 1; w <= kMaxLeaves; ++w) {
    if (TryPlan(config, w).ok()) sizes += (sizes.empty() ? "" : ", ") + std::to_string(w);
  }
  return sizes;
}

Result<ShardPlan> MakeShardPlan(const ModelConfig& config, int world_size) {
  if (world_size >= 1 && world_size <= kMaxLeaves) {
    auto plan = TryPlan(config, world_size);
    if (plan.ok()) return plan;
    return InvalidArgument(fmt::format("--tp {}: {}; this model can be cut for --tp {}", world_size,
                                       plan.status().message(), SupportedWorldSizes(config)));
  }
  return InvalidArgument(fmt::format("--tp {}: must be one of {}", world_size, SupportedWorldSizes(config)));
}

Result<ShardPlan> MakeDraftPlan(const ModelConfig& config, int world_size) {
  for (int sharing = std::min(world_size, kMaxLeaves); sharing > 1; --sharing) {
    auto plan = TryPlan(config, sharing);
    if (!plan.ok()) continue;
    plan->world_size = world_size;
    plan->ranks.resize(static_cast<size_t>(world_size));
    return plan;
  }
  LS_ASSIGN_OR_RETURN(ShardPlan plan, TryPlan(config, 1));
  plan.world_size = world_size;
  plan.ranks.resize(static_cast<size_t>(world_size));
  return plan;
}

}  // namespace lockstep::model
