// model.safetensors.index.json: which shard holds which tensor.
//
// Errors:   kCorruptFile  no JSON of the right form, a tensor twice, or a shard name that is not a plain *.safetensors
//                         name (no folder, nothing hidden): the index must not lead out of its folder
// Threads:  values
// Source:   the index that transformers writes; "metadata" and unknown keys are skipped, its total_size is often wrong
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep::model {

struct SafetensorsIndex {
  std::vector<std::string> files;                         // sorted, each once
  std::vector<std::pair<std::string, uint32_t>> tensors;  // name, index into files; sorted by name

  static Result<SafetensorsIndex> Parse(std::span<const uint8_t> text, const std::string& name);
};

}  // namespace lockstep::model
