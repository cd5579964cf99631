// What `lockstep inspect` prints about a model file: also for architectures and tensor types that are not built, for
// files with a vocabulary only, and for safetensors (a file, an index or a folder), whose tensors are listed.
//
// Units:   bytes; kv_bytes_per_token in bytes for all layers
// Errors:  those of gguf.h and safetensors.h; a file whose config cannot be read is shown with config null and config_error
// Threads: pure functions
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "model/config.h"

namespace lockstep::model {

class GgufFile;
class Safetensors;

// For people: "17 B", "1.5 MiB".
std::string HumanBytes(uint64_t bytes);

struct InspectOptions {
  uint32_t kv_elem_bytes = 2;  // of the kv cache's type
  // Returns the JSON value of "shards" for a config; without it the key is null.
  std::function<std::string(const ModelConfig&)> shards_json;
};

// {path, format, arch, config, tensors:[{name, type, shape, bytes}], tokenizer:{model, pre, vocab}, shards,
//  kv_bytes_per_token}, and fingerprint or config_error. Text that is not UTF-8 appears with U+FFFD. Of safetensors arch
// is the first of config.json's architectures, tensors have a key file too, and config is null unless they are an EAGLE-3
// head.
Result<std::string> InspectJson(const std::string& path, const InspectOptions& options = {});
std::string InspectJson(const GgufFile& file, const InspectOptions& options = {});
std::string InspectJson(const Safetensors& files);

// The same as a table for a person. Names from the file are escaped: no control character reaches the terminal.
Result<std::string> InspectText(const std::string& path, const InspectOptions& options = {});
std::string InspectText(const GgufFile& file, const InspectOptions& options = {});
std::string InspectText(const Safetensors& files);

}  // namespace lockstep::model
