#include "model/layers/mlp.h"

#include "kernels/cpu/kernels.h"
#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"

namespace lockstep::model {

bool Mlp(StepContext& c, const LayerWeights& w) {
  TeamBuffers& team = c.team();
  w.gate.Run(c, team.gate.data(), team.ld_ffn);
  w.up.Run(c, team.up.data(), team.ld_ffn);
  // The same groups that this thread has just computed.
  GroupRange groups = c.MyPart(w.gate.weight.num_groups);
  const int first = groups.begin * 16, count = (groups.end - groups.begin) * 16;
  for (int row = 0; row < c.view().num_rows; ++row) {
    const auto at = static_cast<size_t>(row * team.ld_ffn + first);
    c.kernels().silu_mul(&team.gate[at], &team.up[at], team.gated.Row(row) + first, count);
  }
  if (!c.Prepare(team.gated, c.shard().ffn.count(), IsQuantised(w.down.weight.dtype))) return false;
  w.down.Run(c);
  return true;
}

}  // namespace lockstep::model
