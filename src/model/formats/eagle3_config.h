// config.json of a published EAGLE-3 head: its sizes, and which outputs of the target it reads.
//
// Units:   target layers are 0-based; a tap is the residual stream behind a layer
// Errors:  kNotFound         a key that must be there is absent
//          kCorruptFile      a value is out of range, or two keys contradict each other
//          kUnsupported      a variant that is not built; the text names the key and what is built
//          kInvalidArgument  the head is for another target: the text has both numbers
//          Each text is one line naming file, key and value.
// Threads: pure functions
// Source:  the keys that SafeAILab's EAGLE, SpecForge, SGLang, vLLM, TensorRT-LLM and ModelOpt write or read. Those of
//          eagle_config also stand at the top level; the nested one is looked for first, and both must agree.
//          Absent keys mean what transformers' LlamaConfig means by them. norm_output (return_hidden_post_norm) is read as
//          SGLang, vLLM and TensorRT-LLM run it; SpecForge before its pull request 879 wrote it for heads that were not
//          trained so, which no key tells: only their acceptance does.
#pragma once

#include "model/config.h"
#include "model/formats/json_config.h"

namespace lockstep::model {

// All of the config but what only tensors can tell: own_embedding, draft_to_target, qkv_bias. Without a target (nullptr)
// nothing is held against one, and taps that follow from its depth stay empty.
Result<ModelConfig> Eagle3ConfigFromJson(const JsonConfig& json, const ModelConfig* target);

// The layers whose outputs are meant by the ids of a config. Two conventions are in use under one key:
//   outputs     SpecForge and ModelOpt write the layers whose outputs are read: 1, N/2 - 1, N - 4
//   boundaries  EAGLE's and vLLM's 2, N/2, N - 3 count what enters a layer: id i is the output of layer i - 1, N the
//               output of the last one
// As SGLang does since its pull request 25454, the first id decides: 1 means outputs, since nobody reads the boundary
// behind the first layer; anything else means boundaries. kCorruptFile: an id that no layer of the target has, or one
// twice. num_layers 0: of unknown depth.
Result<std::vector<int>> TapLayersFromIds(const std::string& where, const std::vector<uint64_t>& ids,
                                          uint32_t num_layers);

}  // namespace lockstep::model
