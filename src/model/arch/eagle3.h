// The forward pass of an EAGLE-3 head: one decoder layer over pairs (feature of position k, embedding of token k + 1) that
// predicts token k + 2.
//
//   g = fc(taps of the target at k), or the hidden state that the head left for the position before   (StepView::fused)
//   x = concat(RMSNorm(embedding), RMSNorm(g));  h = g + attention(x);  h = h + mlp(RMSNorm(h))
//   logits = output(RMSNorm(h));  the next g is h, or its norm where the checkpoint says so
//
// Shapes:   StepView -> logits [rows that want them, draft vocabulary]; their h in the team's hidden states
// Threads:  every member of every rank calls it for the same view
// Capture:  yes
// Order:    docs/numerics.md; fc is cut over its inputs like every row-parallel layer
// Source:   EAGLE-3 (Li et al. 2025, arXiv 2503.01840) and the checkpoints published in its format
#pragma once

namespace lockstep::model {

class StepContext;

// False when the group is poisoned.
bool Eagle3Forward(StepContext& c);

}  // namespace lockstep::model
