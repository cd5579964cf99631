#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/formats/eagle3_head.h"
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

// The sizes of an EAGLE-3 head; an error for anything else.
Result<Eagle3Summary> HeadOf(const Safetensors& files) {
  if (!LooksLikeEagle3(files)) return Unsupported(kListedOnly);
  return SummariseEagle3(files);
}

std::string TapsText(const Eagle3Config& c) {
  if (c.tap_layers.empty()) return "usual";
  return fmt::format("{}", fmt::join(c.tap_layers, ", "));
}

Json HeadJson(const Eagle3Summary& s) {
  const ModelConfig& c = s.config;
  return {{"hidden", c.hidden},
          {"target_hidden", c.eagle3.target_hidden},
          {"ffn", c.ffn},
          {"num_heads", c.num_heads},
          {"num_kv_heads", c.num_kv_heads},
          {"head_dim", c.head_dim},
          {"vocab", s.target_vocab},
          {"draft_vocab", c.vocab},
          {"context_length", c.context_length},
          {"tap_layers", c.eagle3.tap_layers},
          {"fc_norm", c.eagle3.fc_norm},
          {"norm_before_fc", c.eagle3.norm_before_fc},
          {"norm_output", c.eagle3.norm_output},
          {"own_embedding", c.eagle3.own_embedding},
          {"layer_prefix", s.layer_prefix}};
}

std::string HeadText(const Eagle3Summary& s) {
  const ModelConfig& c = s.config;
  std::string norms;
  if (c.eagle3.fc_norm) norms += ", fc_norm";
  if (c.eagle3.norm_before_fc) norms += ", norm_before_fc";
  if (c.eagle3.norm_output) norms += ", norm_output";
  return fmt::format(
      "EAGLE-3 head for hidden {}, vocabulary {}\n"
      "           hidden {}, ffn {}, heads {} / {} of {}, draft vocabulary {}, context {}\n"
      "           taps behind layers {}; {} embedding, names {}{}",
      c.eagle3.target_hidden, s.target_vocab, c.hidden, c.ffn, c.num_heads, c.num_kv_heads, c.head_dim, c.vocab,
      c.context_length, TapsText(c.eagle3), c.eagle3.own_embedding ? "own" : "the target's", s.layer_prefix, norms);
}

}  // namespace

std::string InspectJson(const Safetensors& files) {
  Json out;
  out["path"] = files.path();
  out["format"] = "safetensors";
  out["parts"] = files.files().size();
  auto arch = ArchOf(files);
  out["arch"] = arch.ok() ? Json(*arch) : Json(nullptr);
  auto head = HeadOf(files);
  out["config"] = head.ok() ? HeadJson(*head) : Json(nullptr);
  if (!head.ok()) out["config_error"] = arch.ok() ? head.status().message() : arch.status().message();
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
  auto head = HeadOf(files);
  const std::string why_not = arch.ok() ? head.ok() ? "" : head.status().message() : arch.status().message();
  uint64_t total_bytes = 0;
  for (const SafetensorsTensor& t : files.tensors()) total_bytes += t.bytes;
  std::string out =
      fmt::format("file       {}\nformat     safetensors, {} file{}\narch       {}\nconfig     {}\ntensors    {}, {}\n",
                  files.path(), files.files().size(), files.files().size() == 1 ? "" : "s",
                  arch.ok() ? GgufFile::Shown(*arch) : "-", head.ok() ? HeadText(*head) : "none: " + why_not,
                  files.tensors().size(), HumanBytes(total_bytes));
  for (const SafetensorsTensor& t : files.tensors()) {
    out += fmt::format("  {:<40} {:<8} {:<20} {}\n", GgufFile::Shown(t.name), t.type->name,
                       fmt::format("[{}]", fmt::join(t.shape, ", ")), HumanBytes(t.bytes));
  }
  return out;
}

}  // namespace lockstep::model
