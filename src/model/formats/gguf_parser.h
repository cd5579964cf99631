// Parses one GGUF file of any origin into a GgufFile. Used by GgufFile::Open and Parse; nobody else needs it.
//
// Errors:  as in gguf.h; every text begins with the file's name
// Threads: one user
// Cost:    one pass over the metadata; string arrays are walked once to find their end, and not copied
#pragma once

#include <memory>
#include <string>

#include "model/formats/byte_reader.h"
#include "model/formats/gguf.h"

namespace lockstep::model {

class GgufParser {
 public:
  GgufParser(std::span<const uint8_t> bytes, std::string name, GgufMode mode)
      : bytes_(bytes), reader_(bytes), name_(std::move(name)), mode_(mode) {}

  Result<std::unique_ptr<GgufFile>> Run();

 private:
  Status ReadHeader();
  Status ReadValues();
  Status ReadValue(GgufValue* value);
  Status SkipArray(std::string_view key, int depth, GgufValue* value);
  Status IndexValues();
  Status ReadAlignment();
  Status ReadTensors();
  Status ReadTensor(uint64_t index, uint64_t* offset, GgufTensor* tensor);
  Status Layout(std::string_view name, GgufTensor* tensor) const;
  Status PlaceTensors(const std::vector<uint64_t>& offsets);
  Status CheckOverlap() const;

  // Errors, each prefixed with the file's name.
  Status Corrupt(const std::string& text) const;
  Status CutShort(const std::string& what) const;

  std::span<const uint8_t> bytes_;
  ByteReader reader_;
  std::string name_;
  GgufMode mode_;
  uint64_t num_values_ = 0, num_tensors_ = 0;
  uint64_t alignment_ = 32;  // the format's default
  std::unique_ptr<GgufFile> file_;
};

}  // namespace lockstep::model
