#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/formats/gguf.h"
#include "model/formats/json_config.h"
#include "model/formats/safetensors.h"
#include "model/inspect.h"

namespace lockstep::model {
namespace {

using Json = nlohmann::ordered_json;

// What config.json beside the tensors says of the architecture; an error without one.
Result<std::string> ArchOf(const Safetensors& files) {
  LS_ASSIGN_OR_RETURN(
      JsonConfig config,
      JsonConfig::Open((std::filesystem::path(files.files()[0]).parent_path() / "config.json").string()));
  LS_ASSIGN_OR_RETURN(auto names, config.GetStrings("architectures"));
  if (names.empty()) return NotFound(fmt::format("{}: key architectures: is empty", config.path()));
  return names[0];
}

constexpr const char* kListedOnly = "safetensors are listed only; sizes and tokenizer are read from GGUF files";

std::string FileName(const Safetensors& files, const SafetensorsTensor& t) {
  return std::filesystem::path(files.FileOf(t)).filename().string();
}

}  // namespace

std::string InspectJson(const Safetensors& files) {
  Json out;
  out["path"] = files.path();
  out["format"] = "safetensors";
  out["parts"] = files.files().size();
  auto arch = ArchOf(files);
  out["arch"] = arch.ok() ? Json(*arch) : Json(nullptr);
  out["config"] = nullptr;
  out["config_error"] = arch.ok() ? kListedOnly : arch.status().message();
  Json tensors = Json::array();
  for (const SafetensorsTensor& t : files.tensors()) {
    tensors.push_back({{"name", t.name},
                       {"type", t.type->name},
                       {"shape", t.shape},
                       {"bytes", t.bytes},
                       {"file", FileName(files, t)}});
  }
  out["tensors"] = std::move(tensors);
  out["tokenizer"] = {{"model", nullptr}, {"pre", nullptr}, {"vocab", 0}};
  out["shards"] = nullptr;
  out["kv_bytes_per_token"] = nullptr;
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string InspectText(const Safetensors& files) {
  auto arch = ArchOf(files);
  uint64_t total_bytes = 0;
  for (const SafetensorsTensor& t : files.tensors()) total_bytes += t.bytes;
  std::string out = fmt::format(
      "file       {}\nformat     safetensors, {} file{}\narch       {}\nconfig     none: {}\ntensors    {}, {}\n",
      files.path(), files.files().size(), files.files().size() == 1 ? "" : "s",
      arch.ok() ? GgufFile::Shown(*arch) : "-", arch.ok() ? kListedOnly : arch.status().message(),
      files.tensors().size(), HumanBytes(total_bytes));
  for (const SafetensorsTensor& t : files.tensors()) {
    out += fmt::format("  {:<40} {:<8} {:<20} {}\n", GgufFile::Shown(t.name), t.type->name,
                       fmt::format("[{}]", fmt::join(t.shape, ", ")), HumanBytes(t.bytes));
  }
  return out;
}

}  // namespace lockstep::model
