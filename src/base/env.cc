#include "base/env.h"

#include <cstdlib>

namespace lockstep {
namespace {

std::string Read(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

double ReadSeconds(const char* name, double fallback) {
  std::string text = Read(name);
  if (text.empty()) return fallback;
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  return (end && *end == '\0' && value > 0 && value < 1e6) ? value : -1;
}

}  // namespace

const Env& Env::Get() {
  static const Env env = {
      .cpu_isa = Read("LOCKSTEP_CPU_ISA"),
      .test_model = Read("LOCKSTEP_TEST_MODEL"),
      .fault = Read("LOCKSTEP_FAULT"),
      .rank_timeout_secs = ReadSeconds("LOCKSTEP_RANK_TIMEOUT", 30.0),
      .no_color = !Read("NO_COLOR").empty(),
  };
  return env;
}

}  // namespace lockstep
