// cos and sin of every position, made once by all threads together: in double by our own polynomials, rounded to f32.
//
// Shapes:  cos, sin [positions, Dh / 2]
// Units:   positions in tokens
// Threads: disjoint positions may be filled at once; immutable afterwards
// Capture: no: Prepare
// Source:  rotary embeddings (Su et al. 2021); Llama 3's frequency factors divide each frequency
#pragma once

#include <vector>

#include "device/cpu/memory.h"
#include "model/config.h"

namespace lockstep::model {

struct RopeTable {
  int half = 0;                   // Dh / 2
  std::vector<double> frequency;  // [half] radians a position
  device::cpu::ZeroVector<float> cos, sin;

  void Fill(int begin, int end);  // positions [begin, end)

  const float* CosAt(int position) const { return &cos[static_cast<size_t>(position) * half]; }
  const float* SinAt(int position) const { return &sin[static_cast<size_t>(position) * half]; }
};

// With room for `num_positions`, none filled yet.
RopeTable MakeRopeTable(const ModelConfig& config, int num_positions);

}  // namespace lockstep::model
