#include "model/arch/dense_decoder.h"

#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/layers/output.h"
#include "model/step_context.h"
#include "model/weights.h"

namespace lockstep::model {

bool DenseDecoderForward(StepContext& c) {
  c.Embed();
  for (int i = 0; i < static_cast<int>(c.weights().layers.size()); ++i) {
    const LayerWeights& w = c.weights().layers[static_cast<size_t>(i)];
    if (!c.Norm(w.attention_norm, i)) return false;
    c.SaveTap(i - 1);  // the norm has just added the last part of that layer's output
    if (!SelfAttention(c, i)) return false;
    if (!c.Norm(w.mlp_norm, i)) return false;
    if (!Mlp(c, w)) return false;
  }
  return OutputLayer(c);
}

}  // namespace lockstep::model
