// The header of one safetensors file: u64 length, a JSON object of tensors, then their data.
//
// Units:    bytes
// Errors:   as in safetensors.h
// Threads:  pure functions
// Source:   the safetensors format description
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/formats/safetensors.h"

namespace lockstep::model {

// Fills `tensors` in the order of their data, each within `bytes`, and `metadata`. Names may still occur twice.
Status ReadSafetensorsHeader(std::span<const uint8_t> bytes, const std::string& name,
                             std::vector<SafetensorsTensor>* tensors,
                             std::vector<std::pair<std::string, std::string>>* metadata);

}  // namespace lockstep::model
