// The constants of the law of addition (docs/numerics.md), in one place: a change here changes every token.
//
// Units: as named
#pragma once

#include <cstdint>

namespace lockstep {

// Partial sums of a reduction that crosses lanes: element i goes to partial sum i mod 16.
inline constexpr int kLanes = 16;
// Elements of a quantised block: of weights after repacking, and of int8 activations.
inline constexpr int kBlock = 32;
// Keys that one softmax chunk covers, at absolute multiples of it; also the tokens of a kv page.
inline constexpr int kKvChunk = 64;
// Most leaves of the canonical tree over the K dimension of a row-parallel matmul, hence the largest world size.
inline constexpr int kMaxLeaves = 8;

}  // namespace lockstep
