#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "topology/report.h"

namespace lockstep::cli {

void AddDoctor(CLI::App& app, Action* action) {
  auto json = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("doctor", "What this machine has, what will be used, what is missing");
  command->add_option("--json", *json, "As JSON: alone on stdout, with FILE into the file")->type_name("[FILE]");
  command->callback([json, action] {
    *action = [json]() -> Status {
      LS_RETURN_IF_ERROR(CheckJsonTarget(*json));
      LS_ASSIGN_OR_RETURN(topology::MachineReport report, topology::MakeReport());
      LS_RETURN_IF_ERROR(WriteJson(*json, report.ToJson()));
      if (*json != "-") fmt::print("{}", report.ToText());
      return OkStatus();
    };
  });
}

}  // namespace lockstep::cli
