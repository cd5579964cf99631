// The floating-point control word that every thread of an engine sets alike (docs/numerics.md, 7).
//
// Order:   round to nearest even; subnormals are kept, as results and as inputs. A thread that flushed them would give
//          other bits than its neighbour for the same row, so each member sets this itself instead of inheriting it.
// Threads: the calling thread's own state; threads started later do not inherit it on all systems
// Cost:    a few cycles; once a thread
#pragma once

#include <cfenv>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace lockstep {

#if defined(__SSE__)
// MXCSR: rounding mode (bits 13-14), flush-to-zero (15), denormals-are-zero (6).
inline constexpr unsigned kFpEnvBits = 0x6000u | 0x8000u | 0x0040u;
#endif

inline void SetFpEnv() {
  std::fesetround(FE_TONEAREST);
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() & ~kFpEnvBits);
#endif
}

// False if a library has changed the calling thread's control word since.
inline bool CheckFpEnv() {
#if defined(__SSE__)
  return std::fegetround() == FE_TONEAREST && (_mm_getcsr() & kFpEnvBits) == 0;
#else
  return std::fegetround() == FE_TONEAREST;
#endif
}

}  // namespace lockstep
