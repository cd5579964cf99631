// Small integer arithmetic that every module needs.
//
// Errors: the Checked functions return false on overflow and leave *out alone
#pragma once

#include <cstdint>

namespace lockstep {

template <typename T>
constexpr T CeilDiv(T a, T b) {
  return (a + b - 1) / b;
}

template <typename T>
constexpr T AlignUp(T a, T multiple) {
  return CeilDiv(a, multiple) * multiple;
}

// For numbers that come from a file or a request: each is hostile until it has passed here.
[[nodiscard]] inline bool CheckedAdd(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}
[[nodiscard]] inline bool CheckedMul(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}

}  // namespace lockstep
