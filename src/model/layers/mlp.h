// The gated MLP of this rank's part of F: silu(gate x) * (up x), then the row-parallel down projection.
//
// Shapes:   input [T, D]; team().gated [T, F of this rank]
// Threads:  the threads of a rank share F
// Capture:  yes
// Order:    docs/numerics.md 2, 3
#pragma once

namespace lockstep::model {

struct LayerWeights;
class StepContext;

// False when the group is poisoned. Leaves the sum pending.
bool Mlp(StepContext& c, const LayerWeights& w);

}  // namespace lockstep::model
