// The architectures that are built, by their names in model files.
//
// Errors:  FindArchitecture returns nullptr for a name that is not built
// Threads: constants; any
#pragma once

#include <string>
#include <string_view>

namespace lockstep::model {

class StepContext;

struct Architecture {
  const char* name;  // general.architecture
  // The forward pass (arch/); false when the group is poisoned.
  bool (*forward)(StepContext& c);
};

const Architecture* FindArchitecture(std::string_view name);

// The forward pass of a config's arch, draft heads included. Requires: a config that was read here.
const Architecture& ForwardOf(std::string_view arch);

// The names, for messages: "llama, ...".
std::string BuiltArchitectures();

}  // namespace lockstep::model
