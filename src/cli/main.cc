// lockstep: the program. Parsing errors exit 2 and suggest the nearest flag; a command's status gives the exit code.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <new>

#include "base/fp_env.h"
#include "base/log.h"
#include "cli/arguments.h"
#include "cli/commands.h"

namespace lockstep::cli {
namespace {

// A result that did not reach its reader is not a success.
int FlushOutput(int exit_code) {
  std::cout.flush();
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (written || exit_code != 0) return exit_code;
  std::fputs("lockstep: cannot write to standard output\n", stderr);  // which may be closed too
  return ExitCode(StatusCode::kInternal);
}

int Main(int argc, char** argv) {
  SetFpEnv();
  CLI::App app("Lockstep: tensor-parallel language models on the CPU, with speculation that never changes a token.");
  app.name("lockstep");
  app.set_version_flag("--version", "lockstep " LS_VERSION);
  app.require_subcommand(1);
  Action action;
  AddRun(app, &action);
  CLI::App* bench = app.add_subcommand("bench", "Measure: spec (speculation against plain), step (one step by width)");
  bench->require_subcommand(1);
  AddBenchSpec(*bench, &action);
  AddBenchStep(*bench, &action);
  AddExplain(app, &action);
  AddInspect(app, &action);
  AddTokenize(app, &action);
  AddDoctor(app, &action);

  std::vector<std::string> arguments = NormaliseArguments({argv + 1, argv + argc});
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::Success& e) {  // --help, --version
    return FlushOutput(app.exit(e));
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "lockstep: {}\n", ExplainParseError(app, arguments, e));
    return ExitCode(StatusCode::kInvalidArgument);
  }
  Status status;
  try {
    status = action();
  } catch (const std::bad_alloc&) {
    status = OutOfMemory("out of memory");
  } catch (const std::exception& error) {  // a library's, e.g. fmt on a full disk
    status = Internal(error.what());
  }
  if (status.code() == StatusCode::kInterrupted) Log(LogLevel::kInfo, "interrupted");
  if (!status.ok() && status.code() != StatusCode::kInterrupted) Log(LogLevel::kError, status.message());
  return FlushOutput(ExitCode(status.code()));
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  return lockstep::cli::Main(argc, argv);
}
