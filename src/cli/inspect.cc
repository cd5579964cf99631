#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "model/inspect.h"
#include "model/shard.h"

namespace lockstep::cli {
namespace {

// {"1": [{"q_heads": [0, 9], ...}], "2": ...} for the world sizes that the model can be cut for.
std::string ShardsJson(const model::ModelConfig& config) {
  nlohmann::ordered_json shards = nlohmann::ordered_json::object();
  for (int world = 1; world <= 8; ++world) {
    auto plan = model::MakeShardPlan(config, world);
    if (!plan.ok()) continue;
    auto range = [](UnitRange r) { return nlohmann::ordered_json{r.begin, r.end}; };
    nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
    for (const model::RankShard& r : plan->ranks) {
      ranks.push_back({{"q_heads", range(r.q_heads)},
                       {"kv_heads", range(r.kv_heads)},
                       {"ffn", range(r.ffn)},
                       {"vocab", range(r.vocab)}});
    }
    shards[std::to_string(world)] = std::move(ranks);
  }
  return shards.dump();
}

}  // namespace

void AddInspect(CLI::App& app, Action* action) {
  struct Flags {
    std::string path, json;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("inspect", "What a model file holds");
  command->add_option("FILE", flags->path, "GGUF file, any part of a split one; safetensors file or folder")
      ->required();
  command->add_option("--json", flags->json, "As JSON: alone on stdout, with FILE into the file")->type_name("[FILE]");
  command->callback([flags, action] {
    *action = [flags]() -> Status {
      LS_RETURN_IF_ERROR(CheckJsonTarget(flags->json));
      model::InspectOptions options;
      options.shards_json = ShardsJson;
      if (!flags->json.empty()) {
        LS_ASSIGN_OR_RETURN(std::string json, model::InspectJson(flags->path, options));
        LS_RETURN_IF_ERROR(WriteJson(flags->json, json));
        if (flags->json == "-") return OkStatus();
      }
      LS_ASSIGN_OR_RETURN(std::string text, model::InspectText(flags->path, options));
      fmt::print("{}", text);
      return OkStatus();
    };
  });
}

}  // namespace lockstep::cli
