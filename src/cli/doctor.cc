#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/env.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "comm/fault.h"
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
      // What would refuse every other command.
      if (auto fault = comm::ParseFault(Env::Get().fault); !fault.ok()) {
        report.missing.push_back(fault.status().message());
      }
      if (!(Env::Get().rank_timeout_secs > 0)) report.missing.push_back(kBadRankTimeout);
      LS_RETURN_IF_ERROR(WriteJson(*json, report.ToJson()));
      if (*json != "-") fmt::print("{}", report.ToText());
      return OkStatus();
    };
  });
}

}  // namespace lockstep::cli
