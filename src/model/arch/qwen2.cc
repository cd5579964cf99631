#include "model/arch/qwen2.h"

#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"

namespace lockstep::model {

bool Qwen2Forward(StepContext& c) {
  TeamBuffers& team = c.team();
  c.Embed();
  for (int i = 0; i < static_cast<int>(c.weights().layers.size()); ++i) {
    const LayerWeights& w = c.weights().layers[static_cast<size_t>(i)];
    if (!c.Norm(w.attention_norm, i)) return false;
    PrefetchFirstPages(c, i);
    w.q.Run(c, team.q.data(), team.ld_q);
    w.q_bias.Run(c, team.q.data(), team.ld_q);
    w.k.Run(c, team.k.data(), team.ld_kv);
    w.k_bias.Run(c, team.k.data(), team.ld_kv);
    w.v.Run(c, team.v.data(), team.ld_kv);
    w.v_bias.Run(c, team.v.data(), team.ld_kv);
    if (!Attend(c, i)) return false;
    w.attention_out.Run(c);
    if (!c.Norm(w.mlp_norm, i)) return false;
    if (!Mlp(c, w)) return false;
  }
  if (!c.FinalNorm(c.weights().output_norm)) return false;
  if (c.view().num_logits_rows > 0) {  // none: a chunk of a prompt before the last
    c.weights().output.Run(c, c.view().logits + c.shard().vocab.begin, c.view().ld_logits);
    c.Stamp(trace::Owner::kMatmul);
  }
  return true;
}

}  // namespace lockstep::model
