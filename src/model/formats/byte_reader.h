// Reads little-endian numbers and strings from untrusted bytes; every read says whether the bytes were there.
//
// Errors:   a read returns false and moves nothing if fewer bytes remain than it needs
// Requires: a little-endian host
// Threads:  one user
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace lockstep::model {

class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  template <typename T>
  [[nodiscard]] bool Read(T* out) {
    static_assert(std::is_arithmetic_v<T>);
    if (remaining() < sizeof(T)) return false;
    std::memcpy(out, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return true;
  }
  [[nodiscard]] bool Skip(uint64_t num_bytes) {
    if (remaining() < num_bytes) return false;
    offset_ += num_bytes;
    return true;
  }
  [[nodiscard]] bool Take(uint64_t num_bytes, std::span<const uint8_t>* out) {
    if (remaining() < num_bytes) return false;
    *out = bytes_.subspan(offset_, num_bytes);
    offset_ += num_bytes;
    return true;
  }
  // A string as GGUF stores it: u64 length, then the text. The length is compared with what remains, never added to.
  [[nodiscard]] bool ReadString(std::string_view* out) {
    uint64_t start = offset_, length_bytes = 0;
    std::span<const uint8_t> text;
    if (!Read(&length_bytes) || !Take(length_bytes, &text)) {
      offset_ = start;
      return false;
    }
    *out = {reinterpret_cast<const char*>(text.data()), text.size()};
    return true;
  }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t offset_ = 0;  // <= bytes_.size()
};

}  // namespace lockstep::model
