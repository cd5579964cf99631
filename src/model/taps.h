// What a target leaves for draft heads: the residual stream behind some of its layers, of the last positions.
//
// Shapes:   a sequence's entries [kTapSlots], each [number of taps, D] f32; slot s lies in entry s % kTapSlots
// Units:    slots in tokens, as in the cache; elements
// Threads:  each rank has its own, whole: the residual stream is the same on all. A step's rows are written by the
//           threads that norm them and may be read from the next step on.
// Capture:  Create no, the rest yes
#pragma once

#include <cstdint>
#include <vector>

#include "device/cpu/memory.h"

namespace lockstep::model {

// The widest tree that stands behind the committed tokens, and as many positions as a head catches up from.
inline constexpr int kTapSlots = 512;

struct Taps {
  void Create(std::vector<int> tap_layers, int num_sequences, int64_t hidden) {
    layers = std::move(tap_layers);
    d = hidden;
    rows.resize(static_cast<size_t>(num_sequences) * kTapSlots * static_cast<size_t>(ld()));
  }

  std::vector<int> layers;  // whose outputs; in the order of an entry's parts
  int64_t d = 0;
  device::cpu::ZeroVector<float> rows;

  int64_t ld() const { return static_cast<int64_t>(layers.size()) * d; }
  float* At(int sequence, int slot) { return rows.data() + Index(sequence, slot); }
  const float* At(int sequence, int slot) const { return rows.data() + Index(sequence, slot); }

 private:
  int64_t Index(int sequence, int slot) const { return (int64_t{sequence} * kTapSlots + slot % kTapSlots) * ld(); }
};

}  // namespace lockstep::model
