// Upper limits of a model's sizes, whatever file says them: several times the largest published dense models, and small
// enough that every product of three of them stays far below 2^63.
//
// Threads: constants
#pragma once

#include <cstdint>

namespace lockstep::model {

inline constexpr uint64_t kMaxLayers = 1024;
inline constexpr uint64_t kMaxHidden = 1 << 17;
inline constexpr uint64_t kMaxFfn = 1 << 20;
inline constexpr uint64_t kMaxHeads = 1024;
inline constexpr uint64_t kMaxHeadDim = 1024;
inline constexpr uint64_t kMaxVocab = 1 << 22;
inline constexpr uint64_t kMaxContext = 1 << 26;

}  // namespace lockstep::model
