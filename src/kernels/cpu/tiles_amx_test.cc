// The tile instructions do what their wrappers say: rows, strides, signs, and stores that a load must see.
#include <gtest/gtest.h>

#include "device/cpu/features.h"

#define LS_ISA isa_tiles_test
#include "kernels/cpu/unroll.h"
//
#include "kernels/cpu/tiles_amx.h"

namespace lockstep::kernels::isa_tiles_test {
namespace {

TEST(Tiles, LoadsSeeTheStoresBeforeThem) {
  if (!device::cpu::Supports(device::cpu::Features(), device::cpu::CpuIsa::kAmx)) {
    GTEST_SKIP() << "this machine has no AMX";
  }
  TileShapes shapes;
  shapes.Set(0, 16, 64);
  shapes.Set(1, 16, 32);
  shapes.Set(2, 8, 64);
  TileConfigure(shapes);
  alignas(64) int8_t rows[16][32], weights[8][64];
  alignas(64) int32_t sums[16][16];
  for (int round = 0; round < 100; ++round) {
    for (int r = 0; r < 16; ++r) {
      for (int k = 0; k < 32; ++k) rows[r][k] = static_cast<int8_t>(r + k + round);
    }
    for (int v = 0; v < 8; ++v) {
      for (int i = 0; i < 64; ++i) weights[v][i] = static_cast<int8_t>(3 * v - i + round);
    }
    TileLoad<1>(rows, 32);
    TileLoad<2>(weights, 64);
    TileZero<0>();
    TileDot<0, 1, 2>();
    TileStore<0>(sums, 64);
    for (int r = 0; r < 16; ++r) {
      for (int o = 0; o < 16; ++o) {
        int32_t want = 0;
        for (int k = 0; k < 32; ++k) want += rows[r][k] * weights[k / 4][4 * o + k % 4];
        ASSERT_EQ(sums[r][o], want) << "round " << round << " row " << r << " output " << o;
      }
    }
  }
  TileRelease();
}

}  // namespace
}  // namespace lockstep::kernels::isa_tiles_test
