// A GGUF model file (or all parts of a split one), mapped and checked; the tensor data is used in place.
//
// Shapes:   GgufTensor::shape is outermost first, [rows, cols] of a matrix; the file stores ggml's order, which is the
//           reverse (innermost first). Row r of a matrix is contiguous.
// Units:    lengths, offsets and sizes in bytes unless the name says otherwise
// Requires: a little-endian host
// Errors:   kNotFound         the file, a part or a key is absent
//           kCorruptFile      the file contradicts its format: a length or offset that leaves the file, a duplicate key
//                             or tensor, a product that overflows, tensors that overlap, parts of different models; or
//                             the path is a directory, a pipe or a device
//           kUnsupported      legal, but not built: version, big-endian data, tensor type, data not aligned to its type
//           Each text is one line naming file, key or tensor, offset where it helps, and the value.
// Threads:  immutable after Open; any
// Cost:     Open reads the metadata once and touches no tensor data; memory is O(keys + tensors), never O(a length that
//           the file merely claims). Arrays stay in the mapping until their accessor is called.
// Source:   the GGUF specification, v2 and v3. Stricter than it: overlapping tensors are refused, since no writer makes
//           them and two names for the same bytes hide a wrong offset. Holes, any order of tensors and bytes after the
//           last one are accepted, and so are tensors with a dimension of 0 (0 bytes).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/mmap_file.h"
#include "base/result.h"
#include "model/formats/ggml_types.h"

namespace lockstep::model {

struct GgufTensor {
  std::string name;
  DType dtype = DType::kF32;       // meaningful only if type->dtype is set (always, after Open for kLoad)
  const GgmlType* type = nullptr;  // the type as the file states it
  std::vector<uint64_t> shape;     // outermost first; 1 to 4 dimensions, 0 allowed
  const uint8_t* data = nullptr;   // in the mapping; nullptr if bytes == 0
  uint64_t bytes = 0;
};

// The value types of the format, by their ids in the file.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12
};

// One metadata entry. All views point into the mapping.
struct GgufValue {
  std::string_view key;
  GgufValueType type = GgufValueType::kU8;
  GgufValueType elem_type = GgufValueType::kU8;  // of an array
  uint64_t num_elems = 0;                        // of an array; else 1
  std::span<const uint8_t> payload;              // scalar bytes, string text, or the array's elements as stored
};

enum class GgufMode {
  kLoad,     // every tensor must have a type with a kernel, at an address aligned to its elements
  kInspect,  // any known type passes
};

class GgufFile {
 public:
  // Any part of a split model opens all its parts; keys come from part 1, tensors from all.
  static Result<std::unique_ptr<GgufFile>> Open(const std::string& path, GgufMode mode = GgufMode::kLoad);
  // The same from memory, which must stay valid and be aligned to 16 bytes. A part of a split model is refused.
  static Result<std::unique_ptr<GgufFile>> Parse(std::span<const uint8_t> bytes, const std::string& name,
                                                 GgufMode mode = GgufMode::kLoad);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint32_t num_parts() const { return num_parts_; }

  // --- metadata. kNotFound: no such key; kCorruptFile: another type than asked for.
  bool Has(std::string_view key) const { return FindValue(key) != nullptr; }
  const GgufValue* FindValue(std::string_view key) const;  // nullptr if absent
  std::span<const GgufValue> values() const { return values_; }
  Result<uint64_t> GetUint(std::string_view key) const;  // any integer type, value >= 0
  Result<double> GetFloat(std::string_view key) const;   // f32 or f64; may be NaN or infinite
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string> GetString(std::string_view key) const;  // any bytes, perhaps not UTF-8
  // Elements of an array; 0 if the key is absent or no array. Reads nothing.
  uint64_t NumElems(std::string_view key) const;
  Result<std::vector<std::string_view>> GetStrings(std::string_view key) const;  // views into the file
  Result<std::vector<int32_t>> GetInts(std::string_view key) const;  // any integer type, values within int32
  Result<std::vector<float>> GetFloats(std::string_view key) const;  // f32

  // --- tensors, in the order of the file (part after part)
  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* Find(std::string_view name) const;  // nullptr if absent

  // Says that this part of a tensor's data will be read now: its pages come at once (mmap_file.h).
  void Fetch(std::span<const uint8_t> data) const;
  // Says that this part of a tensor's data will not be read soon: its pages leave this process's memory (mmap_file.h).
  // Reading it again is legal. Nothing happens for data that is not mapped from a file.
  void Drop(std::span<const uint8_t> data) const;

  // One line for a person about a name from the file: printable ASCII as is, other bytes as \xNN, shortened.
  static std::string Shown(std::string_view text);

 private:
  friend class GgufParser;
  friend class GgufSplit;
  GgufFile() = default;
  Status IndexTensors();  // sorts tensor_order_ by name; kCorruptFile on a duplicate
  Result<const GgufValue*> Need(std::string_view key) const;
  Status WrongType(const GgufValue& v, const char* expected) const;

  std::string path_;
  uint32_t version_ = 0;
  uint32_t num_parts_ = 1;
  std::vector<std::unique_ptr<MmapFile>> mappings_;
  std::vector<GgufValue> values_;
  std::vector<uint32_t> value_order_;  // indices of values_, sorted by key
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> tensor_order_;  // indices of tensors_, sorted by name
};

}  // namespace lockstep::model
