// A published EAGLE-3 head, checked against its target, as a source of weights.
//
// Shapes:   H hidden of the head, Ht of the target, V and Vd vocabulary of the target and of the head, A query heads,
//           K kv heads, F ffn. Tensors by these names:
//             fc.weight [H, 3 Ht], fc.bias [H]; fc_norm.{0,1,2}.weight [Ht]; fc_input_norm.weight [3 Ht] (norm_before_fc);
//             blk.0.embd_norm.weight [H] of the token's embedding, blk.0.hidden_norm.weight [H] of the hidden;
//             blk.0.attn_q.weight [A Dh, 2 H], blk.0.attn_{k,v}.weight [K Dh, 2 H]: embedding first, then hidden;
//             blk.0.attn_{q,k,v}.bias (qkv_bias); blk.0.attn_output.weight [H, A Dh]; blk.0.ffn_norm.weight [H];
//             blk.0.ffn_{gate,up}.weight [F, H], blk.0.ffn_down.weight [H, F]; output_norm.weight [H];
//             output.weight [Vd, H]; token_embd.weight [V, H]: of the head or, where it has none, of the target
// Requires: the target outlives the head, which may hand out its embedding and its output matrix
// Errors:   those of safetensors.h and eagle3_config.h, and
//           kCorruptFile      a tensor has another shape than the config says, is there twice under two names, or holds
//                             a value that is not finite; a map of the vocabulary that leaves it or meets a token twice
//           kUnsupported      a tensor that no EAGLE-3 head here reads: without it the head would draft nonsense
//           Each text is one line naming file, tensor and value.
// Threads:  opening: one; the source is immutable
// Cost:     reads every matrix but the embedding once: about 2 ns an element, on the calling thread
// Source:   the tensor names of SafeAILab's EAGLE and of SpecForge (midlayer.), of vLLM (layers.0.), and both behind
//           model.; d2t holds differences: draft id i is target id i + d2t[i]
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "model/formats/weight_source.h"

namespace lockstep::model {

struct HeadOptions {
  // What matrices become while they are read: kQ8_0, kQ4_0 or kQ4_1; nullopt leaves them as they are in the file, and so
  // it is for a matrix whose rows are no whole blocks, and for the embedding, of which single rows are read.
  std::optional<DType> weight_dtype = DType::kQ8_0;
};

// `path` is the folder, or a safetensors file or index beside a config.json.
Result<std::unique_ptr<WeightSource>> OpenEagle3Head(const std::string& path, const WeightSource& target,
                                                     const HeadOptions& options = {});

class Safetensors;

// What the folder says of the head, without a target: nothing is held against one, and eagle3.tap_layers is empty where it
// follows from the target's depth. For `inspect`.
struct Eagle3Summary {
  ModelConfig config;
  uint32_t target_vocab = 0;  // V
  std::string layer_prefix;   // what the names of the layer's tensors begin with: "midlayer.", "model.layers.0.", ...
};
Result<Eagle3Summary> SummariseEagle3(const Safetensors& files);

// Whether the tensors are those of an EAGLE-3 head.
bool LooksLikeEagle3(const Safetensors& files);

}  // namespace lockstep::model
