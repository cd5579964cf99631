// Qwen2 (and Qwen2.5): Llama's blocks with biases on q, k and v.
//
// Shapes:   StepView [T rows] -> logits [rows that want them, V of this rank]
// Threads:  every member of every rank runs it
// Capture:  yes
// Source:   Yang et al. 2024, "Qwen2 Technical Report"
#pragma once

namespace lockstep::model {

class StepContext;

// False when the group is poisoned.
bool Qwen2Forward(StepContext& c);

}  // namespace lockstep::model
