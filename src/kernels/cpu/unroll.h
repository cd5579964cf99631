// Full unrolling of short loops with constant bounds, so that arrays of vectors live in registers:
// at -O2 GCC 12 leaves such arrays in memory otherwise, and every block waits for its own stores.
#pragma once

#define LS_UNROLL _Pragma("GCC unroll 16")
