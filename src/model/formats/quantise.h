// Float weights into blocks of 32, at load: the same bytes as GGUF's reference quantiser makes.
//
// Shapes:   a run of elements; blocks as in base/dtype.h
// Requires: finite values whose scale is a finite f16; what is not comes back as a BadElement
// Errors:   BadElement instead of a Status, since only the caller knows the tensor's name
// Threads:  pure functions
// Cost:     about 2 ns an element on one core
// Source:   ggml's reference quantisers of Q8_0, Q4_0 and Q4_1 (quantize_row_*_ref); compared with the gguf package's in
//           quantise_test.cc
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"

namespace lockstep::model {

struct BadElement {
  uint64_t index;
  float value;
};

// `from` is kF32, kF16 or kBF16, `to` kQ8_0, kQ4_0 or kQ4_1; num_elems is a multiple of 32. `source` may lie at any address.
// The first element that `to` cannot hold, if there is one; `out` is then undefined.
std::optional<BadElement> Quantise(DType from, const uint8_t* source, uint64_t num_elems, DType to, uint8_t* out);

// The first element of a kF32, kF16 or kBF16 run that is infinite or no number.
std::optional<BadElement> FindNotFinite(DType type, const uint8_t* source, uint64_t num_elems);

}  // namespace lockstep::model
