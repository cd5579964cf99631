// libFuzzer target of the GGUF loader: no input may crash it, leave the bytes it was given, or take much memory. Seeds:
// tests/data/gguf. The first build is for kLoad, the second for kInspect, so both modes meet every input.
#include <cstdint>

#include "base/log.h"
#include "model/config.h"
#include "model/formats/gguf.h"
#include "model/inspect.h"

namespace {

using lockstep::model::GgufFile;
using lockstep::model::GgufMode;

// Calls every accessor on every key: a type confusion shows as a read beyond the entry.
uint64_t ReadAll(const GgufFile& file) {
  uint64_t sum = 0;
  for (const auto& value : file.values()) {
    sum += file.GetUint(value.key).ok() + file.GetFloat(value.key).ok() + file.GetBool(value.key).ok();
    if (auto text = file.GetString(value.key); text.ok()) sum += text->size();
    if (auto ints = file.GetInts(value.key); ints.ok()) sum += ints->size();
    if (auto floats = file.GetFloats(value.key); floats.ok()) sum += floats->size();
    if (auto strings = file.GetStrings(value.key); strings.ok()) {
      for (std::string_view s : *strings) sum += s.empty() ? 0 : static_cast<uint8_t>(s.back());
    }
  }
  for (const auto& tensor : file.tensors()) {
    if (file.Find(tensor.name) != &tensor) __builtin_trap();
    if (tensor.bytes > 0) sum += tensor.data[0] + tensor.data[tensor.bytes - 1];
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  lockstep::SetLogLevel(lockstep::LogLevel::kError);  // a warning for each input would drown the report
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  for (GgufMode mode : {GgufMode::kLoad, GgufMode::kInspect}) {
    auto file = GgufFile::Parse({data, num_bytes}, "fuzz.gguf", mode);
    if (!file.ok()) {
      if (file.status().message().find('\n') != std::string::npos) __builtin_trap();
      continue;
    }
    volatile uint64_t sum = ReadAll(**file);
    (void)sum;
    auto config = lockstep::model::ConfigFromGguf(**file);
    if (config.ok() && lockstep::model::CheckTensors(**file, *config).ok()) {
      sum = lockstep::model::Fingerprint(**file, *config).size();
    }
    sum = lockstep::model::InspectJson(**file).size() + lockstep::model::InspectText(**file).size();
  }
  return 0;
}
