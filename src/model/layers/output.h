// The end of a model: the final norm of the rows that want logits, and their logits.
//
// Shapes:   residual [T, D] -> StepView::logits, this rank's part of the vocabulary
// Threads:  the threads of a rank share the vocabulary
// Capture:  yes
#pragma once

namespace lockstep::model {

class StepContext;

// False when the group is poisoned.
bool OutputLayer(StepContext& c);

}  // namespace lockstep::model
