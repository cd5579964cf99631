// Qwen3, dense: Llama's blocks with an RMSNorm of each head of q and k before rope.
//
// Shapes:   StepView [T rows] -> logits [rows that want them, V of this rank]
// Threads:  every member of every rank runs it
// Capture:  yes
// Source:   Yang et al. 2025, "Qwen3 Technical Report"
#pragma once

namespace lockstep::model {

class StepContext;

// False when the group is poisoned.
bool Qwen3Forward(StepContext& c);

}  // namespace lockstep::model
