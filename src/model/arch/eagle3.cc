#include "model/arch/eagle3.h"

#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/layers/output.h"
#include "model/step_context.h"
#include "model/weights.h"

namespace lockstep::model {

bool Eagle3Forward(StepContext& c) {
  const LayerWeights& w = c.weights().layers[0];
  if (c.view().fused) {
    if (!c.LoadTaps()) return false;
    c.weights().head.fc.Run(c);
  } else {
    c.LoadHidden();
  }
  if (!c.NormPair(c.weights().head.embedding_norm, w.attention_norm)) return false;
  if (!SelfAttention(c, 0)) return false;
  if (!c.Norm(w.mlp_norm, 0)) return false;
  if (!Mlp(c, w)) return false;
  return OutputLayer(c);
}

}  // namespace lockstep::model
