// How many rows of a prompt a step takes: about a quarter of a second's worth, since Ctrl-C is obeyed between two steps.
// Rows never mix, so the size of a chunk changes no number.
//
// Units:   tokens, seconds
// Threads: one caller
#pragma once

#include <algorithm>

#include "step/step_io.h"

namespace lockstep::engine {

class PromptChunks {
 public:
  // `most`: no chunk is longer.
  int Rows(int left, int most) const { return std::min({rows_, most, left}); }

  // A chunk took so long.
  void Report(int rows, int most, double secs) {
    // A short rest of a prompt says little about a wide chunk: it costs more a row.
    if (rows < std::min(rows_, most)) return;
    // Whole tiles of the kernels, at least one: fewer rows would cost almost as much.
    const double tiles = rows * kSecs / std::max(secs, 1e-6) / 16;
    rows_ = 16 * static_cast<int>(std::clamp(tiles, 1.0, step::kMaxStepRows / 16.0));
  }

 private:
  static constexpr double kSecs = 0.25;
  // The first chunk's, while its speed is not known; enough for the widest tiles of the kernels.
  int rows_ = 64;
};

}  // namespace lockstep::engine
