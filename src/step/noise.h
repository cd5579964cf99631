// The noise of sampling: one standard Gumbel value for each (seed, position, token).
//
// The generator is counter-based: a value depends on nothing but its three names. That is what lets a draft row, a
// verify row and a plain step draw the same token: none of them advances a state that the others would have to replay.
//
// Shapes:  one value, or the four values of tokens 4b .. 4b+3 that share a Philox block
// Units:   position in tokens from the start of the prompt; token an id below the vocabulary
// Capture: pure functions
// Order:   the operations as written, in fp32, through kernels/ref/elementary.h
// Source:  Philox 4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011);
//          Gumbel-max: the argmax of z + G follows softmax(z)
#pragma once

#include <cstdint>

namespace lockstep::step {

struct PhiloxBlock {
  uint32_t word[4];
};

// Ten rounds of Philox 4x32 on a 128-bit counter and a 64-bit key, low words first.
PhiloxBlock Philox4x32(const PhiloxBlock& counter, uint64_t key);

// The block that tokens 4 * block_idx .. 4 * block_idx + 3 share at `position`: counter = {position, block_idx, 0, 0}.
// Positions are below 2^32, since a counter word holds one.
PhiloxBlock NoiseBlock(uint64_t seed, int64_t position, int32_t block_idx);

// (k + 1/2) * 2^-23 with k the top 23 bits: exact in fp32, symmetric about 1/2, never 0 and never 1.
float UniformFromWord(uint32_t word);

// -Log(-Log(u)).
float GumbelFromWord(uint32_t word);

// A value that GumbelFromWord(word) does not exceed, without a logarithm. With L leading ones in the top 23 bits, 1 - u
// >= 2^-(L+1); and -log u > 1 - u, so G < (L+1) ln 2. noise_test.cc confirms it for all 2^23 values as computed in
// fp32.
float GumbelBound(uint32_t word);

// G(seed, position, token) of docs/numerics.md.
float Gumbel(uint64_t seed, int64_t position, int32_t token);

// No noise is larger. The value at k = 2^23 - 1 (u = 1 - 2^-24), which noise_test.cc confirms over all 2^23 values. A
// token whose z + kMaxGumbel is below a score already seen cannot win: fp32 addition is monotone.
inline constexpr float kMaxGumbel = 0x1.0a2b24p+4f;  // 24 ln 2 = 16.6355...
// No noise is smaller: the value at k = 0 (u = 2^-24). For bounds from the other side.
inline constexpr float kMinGumbel = -2.8116f;

}  // namespace lockstep::step
