// Force-included when llama.cpp is built by GCC 12 on a CPU with AMX (bench/peers/llama_cpp.py, setup).
//
// GCC 12's <amxtileintrin.h> spells the tile loads as inline assembly that reads memory through a pointer in a
// register, but does not tell the compiler that memory is read: no "memory" clobber, and for the configuration
// an operand of 8 bytes where 64 are read. The compiler may then drop or delay the stores that fill the
// configuration or the tile just before it, and the program faults (bad configuration) or multiplies stale
// values. The macros below issue the same instructions with the clobber; nothing else changes. A clobber is
// never wrong, so the header needs no test of the compiler's version. Without AMX it is empty.
#ifndef LOCKSTEP_BENCH_PEERS_AMX_GCC12_H_
#define LOCKSTEP_BENCH_PEERS_AMX_GCC12_H_

#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

static inline __attribute__((always_inline)) void peer_tile_loadconfig(const void* config) {
  __asm__ volatile("{ldtilecfg\t(%0)|ldtilecfg\t[%0]}" : : "r"(config) : "memory");
}

// The tile is part of the instruction, so its number must reach the assembly as text: a macro, in two steps so
// that a tile number given as a macro is expanded first.
#define PEER_TILE_LOAD(op, tile, base, stride)                                           \
  __asm__ volatile("{" op "\t(%0,%1,1), %%tmm" #tile "|" op "\t%%tmm" #tile ", [%0+%1]}" \
                   :                                                                     \
                   : "r"((const void*)(base)), "r"((long long)(stride))                  \
                   : "memory")

#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stream_loadd
#define _tile_loadconfig(config) peer_tile_loadconfig(config)
#define _tile_loadd(tile, base, stride) PEER_TILE_LOAD("tileloadd", tile, base, stride)
#define _tile_stream_loadd(tile, base, stride) PEER_TILE_LOAD("tileloaddt1", tile, base, stride)
#endif  // AMX, GCC

#endif  // LOCKSTEP_BENCH_PEERS_AMX_GCC12_H_
