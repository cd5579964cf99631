// Safetensors: one file, or a folder of them with or without an index, mapped and checked; the data is used in place.
//
// Shapes:   outermost first, [rows, cols] of a matrix, as in the file; a scalar has no dimension
// Units:    bytes unless the name says otherwise
// Requires: a little-endian host
// Errors:   kNotFound     the file, a shard or a tensor is absent; a folder without safetensors files
//           kCorruptFile  the file contradicts its format: a header that is cut short or no JSON of the right form, a
//                         product that overflows, offsets that leave the file, overlap or leave a hole, a name twice, an
//                         index that names a file outside its folder or a tensor that is not in the named file
//           kUnsupported  legal, but not built: an element type, or another than the reader can use
//           Each text is one line naming file, tensor, and the value.
// Threads:  immutable after Open; any
// Cost:     Open reads headers only; memory is O(header), never O(a length that the file merely claims)
// Source:   the safetensors format description and its reference reader's limits: header at most 100,000,000 bytes, data
//           in one piece without holes. Stricter: refused are a header that does not begin with {, unknown fields,
//           duplicates, over 8 dimensions, names over 1024 bytes. Tensor data need not be aligned to its elements, since
//           old writers do not pad the header: read it with memcpy.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/mmap_file.h"
#include "base/result.h"

namespace lockstep::model {

// Element types by their names in the format. Those that nothing here reads are listed for `inspect`.
struct SafetensorsType {
  const char* name;
  uint32_t bytes;
  std::optional<DType> dtype;  // F32, F16, BF16: what kernels read
};

struct SafetensorsTensor {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<uint64_t> shape;    // at most 8 dimensions, 0 allowed
  const uint8_t* data = nullptr;  // in the mapping, at any address; nullptr if bytes == 0
  uint64_t bytes = 0;
  uint32_t file_idx = 0;  // index into files()

  uint64_t num_elems() const { return bytes / type->bytes; }
};

class Safetensors {
 public:
  // `path` is a file, an index (*.safetensors.index.json), or a folder. In a folder model.safetensors.index.json leads to
  // the shards; else model.safetensors, or the only *.safetensors file, is the one file.
  static Result<std::unique_ptr<Safetensors>> Open(const std::string& path);
  // One file from memory, which must stay valid.
  static Result<std::unique_ptr<Safetensors>> Parse(std::span<const uint8_t> bytes, const std::string& name);

  // As given to Open.
  const std::string& path() const { return path_; }
  // The file of each shard, by the order of their names; one without an index.
  std::span<const std::string> files() const { return files_; }
  // "__metadata__" of all files, as stored.
  std::span<const std::pair<std::string, std::string>> metadata() const { return metadata_; }

  // File after file, each in the order of its data.
  std::span<const SafetensorsTensor> tensors() const { return tensors_; }
  const SafetensorsTensor* Find(std::string_view name) const;  // nullptr if absent
  const std::string& FileOf(const SafetensorsTensor& t) const { return files_[t.file_idx]; }

  // Whether `data` lies in one of the files.
  bool Holds(std::span<const uint8_t> data) const;
  // As MmapFile's; data that lies in none of the files is left alone.
  void Fetch(std::span<const uint8_t> data) const;
  void Drop(std::span<const uint8_t> data) const;

  // The tensor, checked. kNotFound; kCorruptFile: another shape; kUnsupported: a type that is not one of `types`.
  Result<const SafetensorsTensor*> Get(std::string_view name, std::span<const uint64_t> shape,
                                       std::initializer_list<std::string_view> types) const;
  // An F32, F16 or BF16 tensor of this shape.
  Result<const SafetensorsTensor*> GetFloats(std::string_view name, std::span<const uint64_t> shape) const;
  // The values of an I64 or I32 vector.
  Result<std::vector<int64_t>> GetInts(std::string_view name, uint64_t num_elems) const;
  // The values of a BOOL vector, 0 or 1; kCorruptFile names the first element that is neither.
  Result<std::vector<uint8_t>> GetBools(std::string_view name, uint64_t num_elems) const;

 private:
  Safetensors() = default;
  static Result<std::unique_ptr<Safetensors>> OpenFile(const std::string& path);
  static Result<std::unique_ptr<Safetensors>> OpenIndex(const std::string& path);
  static Result<std::unique_ptr<Safetensors>> OpenFolder(const std::string& path);
  // Takes all that `part` holds; its mapping too.
  void Append(Safetensors&& part);
  const MmapFile* MappingOf(std::span<const uint8_t> data) const;  // nullptr: none
  Status IndexTensors();                                           // sorts order_ by name; kCorruptFile on a duplicate
  Status Bad(const SafetensorsTensor& t, const std::string& text) const;

  std::string path_;
  std::vector<std::string> files_;
  std::vector<std::unique_ptr<MmapFile>> mappings_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<uint32_t> order_;  // indices of tensors_, sorted by name
};

}  // namespace lockstep::model
