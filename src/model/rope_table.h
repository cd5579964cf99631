// cos and sin of every position, made once: in double by our own polynomials, rounded to f32.
//
// Shapes:  cos, sin [positions, Dh / 2]
// Units:   positions in tokens
// Threads: immutable
// Capture: Make no
// Source:  rotary embeddings (Su et al. 2021); Llama 3's frequency factors divide each frequency
#pragma once

#include <vector>

#include "model/config.h"

namespace lockstep::model {

struct RopeTable {
  int half = 0;  // Dh / 2
  std::vector<float> cos, sin;

  const float* CosAt(int position) const { return &cos[static_cast<size_t>(position) * half]; }
  const float* SinAt(int position) const { return &sin[static_cast<size_t>(position) * half]; }
};

RopeTable MakeRopeTable(const ModelConfig& config, int num_positions);

}  // namespace lockstep::model
