// Llama (SmolLM2, Llama 2 and 3): pre-norm blocks of attention and gated MLP on a residual stream.
//
// Shapes:   StepView [T rows] -> logits [rows that want them, V of this rank]
// Threads:  every member of every rank runs it
// Capture:  yes
// Source:   Touvron et al. 2023; Grattafiori et al. 2024
#pragma once

namespace lockstep::model {

class StepContext;

// False when the group is poisoned.
bool LlamaForward(StepContext& c);

}  // namespace lockstep::model
