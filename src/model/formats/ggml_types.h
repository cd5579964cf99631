// The tensor type ids of GGUF files: name and block layout of each id that ggml has given out and still reads.
//
// Units:  block_elems in elements, block_bytes in bytes
// Errors: FindGgmlType returns nullptr for an id that was never given out or was withdrawn
// Source: the GGUF specification and ggml's public type list (ids 4, 5, 31-33 and 36-38 are withdrawn)
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"

namespace lockstep::model {

struct GgmlType {
  uint32_t id;  // as stored in the file
  const char* name;
  uint32_t block_elems;
  uint32_t block_bytes;
  std::optional<DType> dtype;  // empty: the engine has no kernel for this type
};

// The entry of `id`; it lives as long as the program.
const GgmlType* FindGgmlType(uint32_t id);

// True for the ids whose layouts ggml dropped: such files must be made again, no engine reads them.
bool IsWithdrawnGgmlType(uint32_t id);

// The names of the types that have a kernel, for messages: "F32, F16, ...".
std::string BuiltGgmlTypes();

}  // namespace lockstep::model
