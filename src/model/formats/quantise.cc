#include "model/formats/quantise.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/pack.h"
#include "kernels/ref/half.h"

namespace lockstep::model {
namespace {

// Every loop over a block has this constant length and no branch, so that compilers make vectors of it. Comparisons are of
// integers for the same reason: the order of floats, with its NaNs, cannot be turned into a maximum of vectors.
constexpr int kElems = 32;
constexpr int32_t kInfBits = 0x7f800000;
constexpr int32_t kTooLargeBits = 0x4b800000;  // 2^24: no type has such a scale, and nothing below it overflows

struct Block {
  float x[kElems];
  int32_t magnitude[kElems];  // bits of |x|; ordered as |x| is
  int32_t max_magnitude;
};

template <DType kFrom>
void ReadFloats(const uint8_t* source, float* x) {
  if constexpr (kFrom == DType::kF32) {
    std::memcpy(x, source, kElems * sizeof(float));
    return;
  }
  uint16_t h[kElems];
  std::memcpy(h, source, sizeof h);
  uint32_t bits[kElems];
  for (int i = 0; i < kElems; ++i) {
    if constexpr (kFrom == DType::kBF16) {
      bits[i] = static_cast<uint32_t>(h[i]) << 16;
    } else {
      // Exponents move up by 112; of infinities and NaNs by 224. A subnormal is read as 2^-14 x (1 + fraction), less the 1.
      const uint32_t magnitude = (h[i] & 0x7fffu) << 13, exponent = h[i] & 0x7c00u;
      const uint32_t normal = magnitude + (exponent == 0x7c00u ? 224u << 23 : 112u << 23);
      constexpr uint32_t kOne = 113u << 23;
      float subnormal, one;
      const uint32_t with_one = magnitude + kOne;
      std::memcpy(&subnormal, &with_one, sizeof subnormal);
      std::memcpy(&one, &kOne, sizeof one);
      subnormal -= one;
      uint32_t small;
      std::memcpy(&small, &subnormal, sizeof small);
      bits[i] = (exponent == 0 ? small : normal) | (h[i] & 0x8000u) << 16;
    }
  }
  std::memcpy(x, bits, sizeof bits);
}

template <DType kFrom>
void ReadBlock(const uint8_t* source, Block* b) {
  ReadFloats<kFrom>(source, b->x);
  int32_t bits[kElems];
  std::memcpy(bits, b->x, sizeof bits);
  int32_t max = 0;
  for (int i = 0; i < kElems; ++i) {
    const int32_t m = bits[i] & 0x7fffffff;
    b->magnitude[i] = m;
    max = m > max ? m : max;
  }
  b->max_magnitude = max;
}

// Zero where the reciprocal overflows: then the scale is zero as an f16, and so is the block.
float Reciprocal(float d) {
  const float id = d == 0 ? 0 : 1 / d;
  return std::isfinite(id) ? id : 0;
}

// Writes the f16; false if it is infinite.
bool PutHalf(float value, uint8_t* out) {
  const uint16_t h = kernels::ref::F32ToF16(value);
  std::memcpy(out, &h, sizeof h);
  return (h & 0x7c00) != 0x7c00;
}

void PutNibbles(const int32_t* q, uint8_t* out) {
  for (int i = 0; i < kElems / 2; ++i) out[i] = static_cast<uint8_t>(q[i] | q[i + kElems / 2] << 4);
}

bool WriteQ8_0(const Block& b, uint8_t* out) {
  float max;
  std::memcpy(&max, &b.max_magnitude, sizeof max);
  const float d = max / 127, id = Reciprocal(d);
  int8_t q[kElems];
  for (int i = 0; i < kElems; ++i) {  // rounds half away from zero, as roundf
    const float v = b.x[i] * id;
    const auto whole = static_cast<int32_t>(v);
    const float rest = v - static_cast<float>(whole);
    q[i] = static_cast<int8_t>(whole + (rest >= 0.5f) - (rest <= -0.5f));
  }
  std::memcpy(out + 2, q, sizeof q);
  return PutHalf(d, out);
}

bool WriteQ4_0(const Block& b, uint8_t* out) {
  int at = 0;  // the first of the largest magnitude gives the scale its sign
  while (b.magnitude[at] != b.max_magnitude) ++at;
  const float d = b.x[at] / -8, id = Reciprocal(d);
  int32_t q[kElems];
  for (int i = 0; i < kElems; ++i) {
    const auto v = static_cast<int32_t>(b.x[i] * id + 8.5f);
    q[i] = v > 15 ? 15 : v;
  }
  PutNibbles(q, out + 2);
  return PutHalf(d, out);
}

bool WriteQ4_1(const Block& b, uint8_t* out) {
  // Integers in the order of the floats: the magnitude of a negative one counts down.
  int32_t bits[kElems], min = INT32_MAX, max = INT32_MIN;
  std::memcpy(bits, b.x, sizeof bits);
  for (int i = 0; i < kElems; ++i) {
    const int32_t ordered = bits[i] ^ (bits[i] >> 31 & 0x7fffffff);
    min = ordered < min ? ordered : min;
    max = ordered > max ? ordered : max;
  }
  min ^= min >> 31 & 0x7fffffff;
  max ^= max >> 31 & 0x7fffffff;
  float low, high;
  std::memcpy(&low, &min, sizeof low);
  std::memcpy(&high, &max, sizeof high);
  const float d = (high - low) / 15, id = Reciprocal(d);
  int32_t q[kElems];
  for (int i = 0; i < kElems; ++i) {
    const auto v = static_cast<int32_t>((b.x[i] - low) * id + 0.5f);
    q[i] = v > 15 ? 15 : v;
  }
  PutNibbles(q, out + 4);
  const bool scale_fits = PutHalf(d, out), low_fits = PutHalf(low, out + 2);
  return scale_fits && low_fits;
}

// What is wrong with a block: its first value that is not finite, else its largest.
BadElement Worst(const Block& b, uint64_t first) {
  int at = 0;
  while (b.magnitude[at] < kInfBits && b.magnitude[at] != b.max_magnitude) ++at;
  return {first + static_cast<uint64_t>(at), b.x[at]};
}

template <DType kFrom>
std::optional<BadElement> QuantiseFrom(const uint8_t* source, uint64_t num_elems, DType to, uint8_t* out) {
  const uint64_t source_bytes = kElems * GetDTypeInfo(kFrom).block_bytes, out_bytes = GetDTypeInfo(to).block_bytes;
  Block b;
  for (uint64_t first = 0; first < num_elems; first += kElems, source += source_bytes, out += out_bytes) {
    ReadBlock<kFrom>(source, &b);
    if (b.max_magnitude >= kTooLargeBits) return Worst(b, first);
    const bool fits = to == DType::kQ8_0   ? WriteQ8_0(b, out)
                      : to == DType::kQ4_0 ? WriteQ4_0(b, out)
                                           : WriteQ4_1(b, out);
    if (!fits) return Worst(b, first);
  }
  return std::nullopt;
}

}  // namespace

std::optional<BadElement> Quantise(DType from, const uint8_t* source, uint64_t num_elems, DType to, uint8_t* out) {
  LS_CHECK_EQ(num_elems % kElems, 0u);
  LS_CHECK(to == DType::kQ8_0 || to == DType::kQ4_0 || to == DType::kQ4_1);
  switch (from) {
    case DType::kF32:
      return QuantiseFrom<DType::kF32>(source, num_elems, to, out);
    case DType::kF16:
      return QuantiseFrom<DType::kF16>(source, num_elems, to, out);
    case DType::kBF16:
      return QuantiseFrom<DType::kBF16>(source, num_elems, to, out);
    default:
      break;
  }
  LS_CHECK(false);
  return std::nullopt;
}

namespace {

// Whether one of kElems values has all bits of `exponent` set.
template <typename T>
bool AnyNotFinite(const uint8_t* source, T exponent) {
  T bits[kElems], any = 0;
  std::memcpy(bits, source, sizeof bits);
  for (int i = 0; i < kElems; ++i) any = static_cast<T>(any | ((bits[i] & exponent) == exponent ? 1 : 0));
  return any != 0;
}

}  // namespace

std::optional<BadElement> FindNotFinite(DType type, const uint8_t* source, uint64_t num_elems) {
  const uint64_t bytes = GetDTypeInfo(type).block_bytes;
  const uint16_t half_exponent = type == DType::kF16 ? 0x7c00 : 0x7f80;
  auto is_clean = [&](uint64_t first) {
    const uint8_t* p = source + first * bytes;
    return type == DType::kF32 ? !AnyNotFinite<uint32_t>(p, kInfBits) : !AnyNotFinite<uint16_t>(p, half_exponent);
  };
  for (uint64_t first = 0; first < num_elems; first += kElems) {
    if (num_elems - first >= kElems && is_clean(first)) continue;
    for (uint64_t i = first; i < num_elems && i < first + kElems; ++i) {
      float value;
      kernels::DequantRow(type, source + i * bytes, 1, &value);
      if (!std::isfinite(value)) return BadElement{i, value};
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::model
