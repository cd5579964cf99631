#include "step/noise.h"

#include <algorithm>
#include <bit>

#include "kernels/ref/elementary.h"

namespace lockstep::step {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;  // the golden ratio
constexpr uint32_t kWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
constexpr int kRounds = 10;

}  // namespace

PhiloxBlock Philox4x32(const PhiloxBlock& counter, uint64_t key) {
  uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier0} * c0;
    const uint64_t p1 = uint64_t{kMultiplier1} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

PhiloxBlock NoiseBlock(uint64_t seed, int64_t position, int32_t block_idx) {
  return Philox4x32({{static_cast<uint32_t>(position), static_cast<uint32_t>(block_idx), 0u, 0u}}, seed);
}

float UniformFromWord(uint32_t word) {
  return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f;
}

float GumbelFromWord(uint32_t word) {
  return -kernels::ref::Log(-kernels::ref::Log(UniformFromWord(word)));
}

float GumbelBound(uint32_t word) {
  const int num_ones = std::min(std::countl_one(word), 23);
  return static_cast<float>(num_ones + 1) * 0.69316f;  // ln 2 = 0.693147..., rounded up
}

float Gumbel(uint64_t seed, int64_t position, int32_t token) {
  return GumbelFromWord(NoiseBlock(seed, position, token / 4).word[token % 4]);
}

}  // namespace lockstep::step
