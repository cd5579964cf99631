// AMX tiles, and the same tiles in plain memory for machines without them.
//
// A tile is a register of up to 16 rows of 64 bytes. LS_TILES_EMULATED replaces the instructions by loops with the same
// results, so that the kernels above them are tested on every machine with AVX-512.
//
// The wrappers are our own because those of GCC 12 lack a memory clobber on loads and on the configuration: stores
// before a load (the unpacked weights) may then be moved behind it, and the tile reads what was there before. Here every
// access to memory is an asm statement with a memory clobber; tools/check_layers.py fails where one lacks it, and on a
// machine with AMX the kernels' tests compare every tile with the definition.
//
// Shapes:  a tile is [rows, bytes] as TileShapes says; memory is [rows] with a stride in bytes
// Capture: yes
// Threads: the configuration belongs to the thread; TileConfigure ... TileRelease around each use
// Source:  Intel 64 and IA-32 Architectures Software Developer's Manual, "Intel AMX"
#pragma once

namespace lockstep::kernels::LS_ISA {

// The operand of ldtilecfg.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void Set(int tile, int num_rows, int bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileShapes) == 64);

#ifndef LS_TILES_EMULATED

LS_INLINE void TileConfigure(const TileShapes& shapes) {
  asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
}

LS_INLINE void TileRelease() {
  asm volatile("tilerelease" : : : "memory");
}

template <int kTile>
LS_INLINE void TileZero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

template <int kTile>
LS_INLINE void TileLoad(const void* p, int64_t row_stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(row_stride), "i"(kTile) : "memory");
}

template <int kTile>
LS_INLINE void TileStore(void* p, int64_t row_stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(row_stride), "i"(kTile) : "memory");
}

// sum[m][n] += the products of four signed bytes of row m of `a` and of row k of `b`, for all k.
template <int kSum, int kA, int kB>
LS_INLINE void TileDot() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

#else

struct TileState {
  TileShapes shapes;
  uint8_t data[8][16][64];
};
inline TileState& Tiles() {
  static thread_local TileState state;
  return state;
}

inline void TileConfigure(const TileShapes& shapes) {
  Tiles().shapes = shapes;
  __builtin_memset(Tiles().data, 0, sizeof Tiles().data);
}

inline void TileRelease() {
  Tiles().shapes = TileShapes();
}

template <int kTile>
inline void TileZero() {
  __builtin_memset(Tiles().data[kTile], 0, sizeof Tiles().data[kTile]);
}

template <int kTile>
inline void TileLoad(const void* p, int64_t row_stride) {
  TileZero<kTile>();
  for (int r = 0; r < Tiles().shapes.rows[kTile]; ++r) {
    __builtin_memcpy(Tiles().data[kTile][r], static_cast<const uint8_t*>(p) + r * row_stride,
                     Tiles().shapes.row_bytes[kTile]);
  }
}

template <int kTile>
inline void TileStore(void* p, int64_t row_stride) {
  for (int r = 0; r < Tiles().shapes.rows[kTile]; ++r) {
    __builtin_memcpy(static_cast<uint8_t*>(p) + r * row_stride, Tiles().data[kTile][r],
                     Tiles().shapes.row_bytes[kTile]);
  }
}

template <int kSum, int kA, int kB>
inline void TileDot() {
  TileState& t = Tiles();
  for (int m = 0; m < t.shapes.rows[kSum]; ++m) {
    for (int n = 0; n < t.shapes.row_bytes[kSum] / 4; ++n) {
      int32_t sum;
      __builtin_memcpy(&sum, &t.data[kSum][m][4 * n], 4);
      for (int k = 0; k < t.shapes.rows[kB]; ++k) {
        for (int i = 0; i < 4; ++i) {
          sum += static_cast<int8_t>(t.data[kA][m][4 * k + i]) * static_cast<int8_t>(t.data[kB][k][4 * n + i]);
        }
      }
      __builtin_memcpy(&t.data[kSum][m][4 * n], &sum, 4);
    }
  }
}

#endif

}  // namespace lockstep::kernels::LS_ISA
