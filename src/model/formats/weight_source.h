// Where weights come from, whatever the file format: a config and named tensors, used in place.
//
// Shapes:  TensorRef is [rows, cols], row-major; a vector has one row. Matrices are [out, in].
// Units:   rows, cols in elements; bytes in bytes
// Errors:  kNotFound     no tensor of that name
//          kUnsupported  the tensor has more than two dimensions
//          opening: as in gguf.h and config.h
// Threads: immutable; any
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"
#include "model/config.h"

namespace lockstep::model {

class GgufFile;

struct TensorRef {
  std::string name;
  DType dtype = DType::kF32;
  uint64_t rows = 0, cols = 0;
  const uint8_t* data = nullptr;  // valid as long as the source
  uint64_t bytes = 0;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const ModelConfig& config() const = 0;
  // By the names that GGUF uses (blk.0.attn_q.weight); other formats map theirs to these.
  virtual Result<TensorRef> Get(std::string_view name) const = 0;
  // Says that a part of a tensor's data will be read now. Any thread.
  virtual void Fetch(std::span<const uint8_t> data) const = 0;
  // Says that a part of a tensor's data has been read for good: it need not stay in this process's memory. It may still
  // be read again. Any thread.
  virtual void Drop(std::span<const uint8_t> data) const = 0;
  virtual std::string fingerprint() const = 0;
  // The GGUF file behind the source, which holds the tokenizer too; nullptr for another format.
  virtual const GgufFile* gguf() const { return nullptr; }
};

// Opens a GGUF model (any part of a split one); every tensor that its config needs is checked before this returns.
Result<std::unique_ptr<WeightSource>> OpenGgufWeights(const std::string& path);

}  // namespace lockstep::model
