// Attention of this rank's heads over the paged cache: rope, cache stores, and each row's own path.
//
// Shapes:   team().q [T, heads x Dh], team().k, .v [T, kv heads x Dh] -> team().attended [T, heads x Dh]
// Threads:  the threads of a rank share rows and heads, or with few rows and a long context the chunks of keys, which
//           takes one more barrier
// Capture:  yes
// Order:    docs/numerics.md 5: keys in position order along the row's own path, siblings are not read
#pragma once

namespace lockstep::model {

class StepContext;

// RMSNorm of each head of q and k before rope: weights [Dh], or null for none.
struct HeadNorms {
  const float* q = nullptr;
  const float* k = nullptr;
};

// Asks for each sequence's first page of a layer, so that it comes while the projections are computed. Attention itself
// asks for every later page while it works on the one before.
void PrefetchFirstPages(StepContext& c, int layer);

// False when the group is poisoned.
bool Attend(StepContext& c, int layer, const HeadNorms& norms = {});

// The attention half of a layer: projections of the normed rows, attention, output projection. Leaves the sum pending.
bool SelfAttention(StepContext& c, int layer);

}  // namespace lockstep::model
