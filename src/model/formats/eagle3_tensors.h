// The tensors of an EAGLE-3 head: their names in files, their shapes, and the map of its vocabulary.
//
// Errors:  as in eagle3_head.h
// Threads: pure functions
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "model/formats/safetensors.h"
#include "model/formats/weight_source.h"

namespace lockstep::model {

// By the names of eagle3_head.h, d2t and t2d too.
using HeadTensors = std::map<std::string, const SafetensorsTensor*, std::less<>>;

// Which tensor of the files is which, by name alone.
Result<HeadTensors> FindHeadTensors(const Safetensors& files);

// Every tensor that `config` needs is there with its shape, and no other; sets what only the tensors tell: own_embedding,
// qkv_bias and draft_to_target. `target_vocab` is V.
Status CheckHeadTensors(const Safetensors& files, const HeadTensors& tensors, uint64_t target_vocab,
                        ModelConfig* config);

}  // namespace lockstep::model
