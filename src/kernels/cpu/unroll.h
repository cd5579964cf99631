// Full unrolling of short loops with constant bounds, so that arrays of vectors live in registers:
// at -O2 GCC 12 leaves such arrays in memory otherwise, and every block waits for its own stores.
#pragma once

#define LS_UNROLL _Pragma("GCC unroll 16")
// For the pieces of such loops: what is not inlined passes its vectors through memory.
#define LS_INLINE inline __attribute__((always_inline))
