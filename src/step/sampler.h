// The sampler: the token of one row, a pure function of its logits, the request's parameters, the tokens before the row
// and the row's position. Speculation, batch and thread count do not enter.
//
//   x = logits, penalties applied, bias added             z = x * (1 / temperature)
//   kept = top-k, then top-p, then min-p, on the probabilities of z
//   token = argmax over kept of z + G(seed, position, token)          temperature 0: argmax of x
//
// The temperature comes before the filters, as in vLLM and the OpenAI interface. The penalties see the row's own path:
// prompt, committed output, and the row's draft ancestors. Sampling with a draft path therefore equals sampling after
// that path was committed.
//
// Shapes:  logits [vocab]
// Units:   position in tokens from the start of the prompt
// Threads: one caller an object (it owns scratch)
// Capture: constructor no, Sample yes (no allocation, no system call)
// Order:   values: larger first, then smaller id; -0 equals +0. Probabilities are exp(z - zmax) rounded to 64-bit fixed
//          point (2^40 is 1) before any sum, so a top-p cut does not depend on the order of addition. Penalties, each
//          operation rounded to fp32, in this order: repetition, minus frequency * count, minus presence, plus bias.
// Cost:    about four passes over the vocabulary, noise only for tokens that could still win; the penalties walk the
//          tokens before the row
// Source:  Gumbel-max; repetition penalty of Keskar et al. 2019 (CTRL), as Hugging Face applies it
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "step/sampling_params.h"

namespace lockstep::step {

struct SampleRequest {
  const float* logits = nullptr;           // [vocab], not modified
  int vocab = 0;                           // without padding; at most the sampler's
  const SamplingSpec* spec = nullptr;      // validated (MakeSamplingSpec)
  int64_t position = 0;                    // of the token to be sampled: the row's own position + 1
  std::span<const int32_t> prompt_tokens;  // all ids below vocab
  std::span<const int32_t> output_tokens;  // committed
  std::span<const int32_t> path_tokens;    // the row's draft ancestors, then its own draft token
  bool want_logprob = false;               // costs one more pass with vocab exponentials
};

struct SampleResult {
  int32_t token = -1;   // -1 if not finite
  bool finite = false;  // false: a logit is NaN or infinite, or became so under the parameters
  float logprob = 0;    // of the token under softmax(logits), unmodified; NaN unless wanted
};

// The index of the largest value, the smallest such index among equals; -0 equals +0. Requires: count >= 1, no NaN.
int32_t Argmax(const float* values, int count);

// True if no value is NaN or infinite.
bool AllFinite(const float* values, int count);

// log softmax(logits)[token], with the sum in fixed point. Requires: finite logits, 0 <= token < vocab.
float Logprob(const float* logits, int vocab, int32_t token);

class Sampler {
 public:
  // Samples rows of at most `vocab` logits. The kernels do the passes over the vocabulary; every table gives the same.
  explicit Sampler(int vocab, const kernels::CpuKernels& kernels = kernels::GenericKernels());

  SampleResult Sample(const SampleRequest& request);

  // The ids that the filters keep, ascending; empty if not finite. For tests and for explaining a sample. The result
  // lies in the sampler's scratch, until the next call.
  std::span<const int32_t> Kept(const SampleRequest& request);

 private:
  int32_t ArgmaxOf(const float* values, int vocab) const;
  // Penalties and bias into work_; returns the adjusted logits: work_, or the request's own if nothing applies.
  const float* Adjust(const SampleRequest& request);
  void ApplyPenalties(const SampleRequest& request);
  // z into work_; returns the id of the largest, or -1 if it is not finite.
  int32_t Scale(const float* adjusted, const SamplingSpec& spec, int vocab);
  // Fills index_ with the kept ids, in no particular order; returns how many.
  int Filter(const SamplingSpec& spec, int vocab, float z_max);
  // The nucleus, most probable first, in index_; returns its size. Among the first num_kept of index_.
  int KeepTopP(float top_p, int num_kept, float z_max);

  int vocab_;
  const kernels::CpuKernels* kernels_;
  std::vector<float> exp_;        // [vocab] exp(z - zmax) of the tokens in index_, in its order
  std::vector<float> work_;       // [vocab] adjusted, then scaled logits
  std::vector<uint64_t> weight_;  // [vocab] fixed-point exp(z - zmax), of tokens top-p looked at
  std::vector<int32_t> index_;    // [vocab] kept ids; the touched ids while penalties are applied
  std::vector<int32_t> count_;    // [vocab] occurrences in output and path; all 0 between calls
  std::vector<uint8_t> seen_;     // [vocab] in prompt, output or path; all 0 between calls
};

}  // namespace lockstep::step
