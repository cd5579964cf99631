#include "model/layers/output.h"

#include "model/shard.h"
#include "model/step_context.h"
#include "model/weights.h"

namespace lockstep::model {

bool OutputLayer(StepContext& c) {
  if (c.TapsOutput()) {  // the final norm looks at the rows that want logits only
    const int last = static_cast<int>(c.weights().layers.size()) - 1;
    if (!c.Norm(c.weights().output_norm, last + 1)) return false;
    c.SaveTap(last);
  }
  if (!c.FinalNorm(c.weights().output_norm)) return false;
  if (c.view().num_logits_rows > 0) {  // none: a chunk of a prompt before the last
    c.weights().output.Run(c, c.view().logits + c.shard().vocab.begin, c.view().ld_logits);
    c.Stamp(trace::Owner::kMatmul);
  }
  return true;
}

}  // namespace lockstep::model
