// The forward pass of llama, qwen2 and qwen3: a pre-norm decoder with grouped-query attention, rotary positions and a
// gated MLP. They differ in weights that are there or not: biases of q, k and v (qwen2), norms of their heads (qwen3).
//
// Shapes:   StepView -> logits of the rows that want them
// Threads:  every member of every rank calls it for the same view
// Capture:  yes
// Order:    docs/numerics.md
#pragma once

namespace lockstep::model {

class StepContext;

// False when the group is poisoned.
bool DenseDecoderForward(StepContext& c);

}  // namespace lockstep::model
