// Element types of tensors in files, weights and caches.
//
// Units:  block_elems in elements, block_bytes in bytes; a plain type has blocks of one element
// Source: the GGUF specification (ggml's block layouts; ids are the file's)
#pragma once

#include <cstdint>

namespace lockstep {

enum class DType : uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };

struct DTypeInfo {
  const char* name;
  uint32_t block_elems;
  uint32_t block_bytes;
};

constexpr DTypeInfo GetDTypeInfo(DType t) {
  switch (t) {
    case DType::kF32:
      return {"F32", 1, 4};
    case DType::kF16:
      return {"F16", 1, 2};
    case DType::kBF16:
      return {"BF16", 1, 2};
    case DType::kQ4_0:
      return {"Q4_0", 32, 18};  // f16 scale, 16 bytes of nibbles
    case DType::kQ4_1:
      return {"Q4_1", 32, 20};  // f16 scale, f16 minimum, 16 bytes of nibbles
    case DType::kQ5_0:
      return {"Q5_0", 32, 22};  // f16 scale, 32 high bits, 16 bytes of nibbles
    case DType::kQ5_1:
      return {"Q5_1", 32, 24};  // f16 scale, f16 minimum, 32 high bits, 16 bytes of nibbles
    case DType::kQ8_0:
      return {"Q8_0", 32, 34};  // f16 scale, 32 int8
    // Superblocks: eight blocks of 32 whose own scales are integers times the superblock's f16.
    case DType::kQ4_K:
      return {"Q4_K", 256, 144};  // f16 scale, f16 minimum, 8 + 8 integers of 6 bits, 128 bytes of nibbles
    case DType::kQ5_K:
      return {"Q5_K", 256, 176};  // the same with 32 bytes of high bits before the nibbles
    case DType::kQ6_K:
      return {"Q6_K", 256, 210};  // 128 bytes of nibbles, 64 of upper bit pairs, 16 int8 scales, f16 scale
  }
  return {"?", 1, 0};
}

constexpr const char* DTypeName(DType t) {
  return GetDTypeInfo(t).name;
}
constexpr bool IsQuantised(DType t) {
  return GetDTypeInfo(t).block_elems > 1;
}

}  // namespace lockstep
