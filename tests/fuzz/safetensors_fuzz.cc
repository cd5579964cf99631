// libFuzzer target of the safetensors reader, its index and config.json: no input may crash them, lead outside the bytes
// given, or take much memory. Every input is tried as each of the three. Seeds: tests/data/safetensors.
#include <cstdint>
#include <string>

#include "model/formats/json_config.h"
#include "model/formats/safetensors.h"
#include "model/formats/safetensors_index.h"
#include "model/inspect.h"

namespace {

using lockstep::Status;
using lockstep::model::JsonConfig;
using lockstep::model::Safetensors;
using lockstep::model::SafetensorsIndex;

void CheckLine(const Status& status) {
  for (char c : status.message()) {
    if (c < 0x20 || c > 0x7e) __builtin_trap();  // one printable line
  }
}

template <typename T>
size_t Used(const lockstep::Result<T>& result) {
  if (!result.ok()) CheckLine(result.status());
  return result.ok();
}

size_t ReadAll(const Safetensors& file) {
  size_t sum = 0;
  for (const auto& t : file.tensors()) {
    if (file.Find(t.name) != &t) __builtin_trap();
    if (t.bytes > 0) sum += t.data[0] + t.data[t.bytes - 1];
    const uint64_t n = t.shape.empty() ? 0 : t.shape[0];
    if (t.bytes > 1 << 20) continue;
    sum += Used(file.GetFloats(t.name, t.shape)) + Used(file.GetInts(t.name, n)) + Used(file.GetBools(t.name, n));
  }
  return sum + Used(file.GetInts("absent", 1)) + InspectJson(file).size() + InspectText(file).size();
}

size_t ReadAll(const JsonConfig& c) {
  size_t sum = 0;
  for (const char* key : {"hidden_size", "rms_norm_eps", "tie_word_embeddings", "architectures", "none", "mixed",
                          "eagle_config/eagle_aux_hidden_state_layer_ids", "deep/a/b/c", "a", ""}) {
    sum += c.Has(key) + Used(c.GetUint(key, 1, 1 << 20)) + Used(c.GetPositive(key, 1e6)) + Used(c.GetBool(key)) +
           Used(c.GetString(key)) + Used(c.GetUints(key, 0, 1000, 8)) + Used(c.GetStrings(key));
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  volatile size_t sum = 0;
  auto file = Safetensors::Parse({data, num_bytes}, "fuzz.safetensors");
  if (Used(file)) sum = ReadAll(**file);
  auto config = JsonConfig::Parse({data, num_bytes}, "fuzz.json");
  if (Used(config)) sum = ReadAll(*config);
  auto index = SafetensorsIndex::Parse({data, num_bytes}, "fuzz.index.json");
  if (Used(index)) {
    for (const auto& [name, file_idx] : index->tensors) {
      if (file_idx >= index->files.size() || index->files[file_idx].find('/') != std::string::npos) __builtin_trap();
    }
  }
  (void)sum;
  return 0;
}
