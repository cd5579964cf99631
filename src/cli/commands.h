// The subcommands: each adds itself to the program and sets what to run.
//
// Errors:   a command's status becomes the process's exit code (docs/errors.md)
// Threads:  the main thread
#pragma once

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace lockstep::cli {

// Filled by the callback of the subcommand that was given.
using Action = std::function<Status()>;

void AddRun(CLI::App& app, Action* action);
void AddBenchSpec(CLI::App& bench, Action* action);
void AddBenchStep(CLI::App& bench, Action* action);
void AddExplain(CLI::App& app, Action* action);
void AddInspect(CLI::App& app, Action* action);
void AddTokenize(CLI::App& app, Action* action);
void AddDoctor(CLI::App& app, Action* action);

}  // namespace lockstep::cli
