// What a model is: its sizes and constants, read from the model file and checked.
//
// Shapes:  the letters of docs/glossary.md: D hidden, F ffn, H query heads, K kv heads, Dh head dim, V vocab
// Errors:  kNotFound     a key or tensor that the architecture needs is missing
//          kCorruptFile  a value is out of range or a tensor has another shape than the config says
//          kUnsupported  an architecture or variant that is not built; the text names it and what is
//          Each text names the file, the key or tensor, and the value.
// Threads: values and pure functions
// Source:  the key and tensor names of the GGUF specification for llama, qwen2 and qwen3 models
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::model {

class GgufFile;

enum class RopeScaling {
  kNone,
  kLinear,       // angles divided by rope_factor
  kFreqFactors,  // frequency i divided by rope_freq_factors[i] (Llama 3)
};

// The arch of a draft head, which is no model of its own.
inline constexpr std::string_view kHeadArch = "eagle3";

struct Eagle3Config {                    // of an EAGLE-3 head; arch == "eagle3"
  uint32_t target_hidden = 0;            // Ht: width of a tap
  std::vector<int> tap_layers;           // 0-based; the outputs of these target layers, in the order of fc's columns
  bool fc_norm = false;                  // an RMSNorm on each tap before fc (EAGLE-3.1)
  bool norm_before_fc = false;           // one RMSNorm over all taps of a row together, [3 * Ht], before fc and fc_norm
  bool norm_output = false;              // the hidden fed back is the one after the last norm
  bool own_embedding = false;            // else the target's
  std::vector<int32_t> draft_to_target;  // [V] target id of each draft id; empty: the same ids
};

struct ModelConfig {
  std::string arch;  // "llama", "qwen2", "qwen3", "eagle3"
  std::string name;  // for people; may be empty
  uint32_t num_layers = 0;
  uint32_t hidden = 0;          // D
  uint32_t ffn = 0;             // F
  uint32_t num_heads = 0;       // H
  uint32_t num_kv_heads = 0;    // K; H % K == 0
  uint32_t head_dim = 0;        // Dh; even. H * Dh need not be D
  uint32_t vocab = 0;           // V: rows of the embedding; the tokenizer may name fewer
  uint32_t context_length = 0;  // positions the model was trained for
  float rms_norm_eps = 0;
  double rope_theta = 10000;
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 1;                // kLinear
  std::vector<float> rope_freq_factors;  // [Dh / 2], kFreqFactors
  bool rope_interleaved = false;         // pairs (0,1), (2,3), ... (GGUF llama); else (i, i + Dh/2)
  bool tied_embeddings = false;          // the head is the embedding
  bool qkv_bias = false;                 // q, k and v have biases (qwen2)
  bool qk_norm = false;                  // each head of q and k has an RMSNorm before rope (qwen3)
  Eagle3Config eagle3;                   // arch "eagle3" only; vocab is then the draft vocabulary
};

// The config of a file. Reads keys and shapes only, and rope_freqs.weight if there.
Result<ModelConfig> ConfigFromGguf(const GgufFile& file);

// Every tensor that `config` needs is there with its exact shape; logs one warning that lists the tensors nobody reads.
// A bias is refused: without it the model would run and answer wrongly.
Status CheckTensors(const GgufFile& file, const ModelConfig& config);

// 16 hex digits that stay the same for the same config and weights, split or not, under any file name: a hash of the
// config's sizes, of every tensor's name, type and shape, and of some bytes of each. Not a defence against forgery.
std::string Fingerprint(const GgufFile& file, const ModelConfig& config);

// Bytes of keys and values that one position takes in all layers, for elements of `elem_bytes`.
inline uint64_t KvBytesPerToken(const ModelConfig& c, uint32_t elem_bytes) {
  return uint64_t{2} * c.num_layers * c.num_kv_heads * c.head_dim * elem_bytes;
}

}  // namespace lockstep::model
