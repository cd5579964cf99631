#include "base/check.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace lockstep {

void CheckFailed(const char* file, int line, const char* expression, const std::string& values) {
  fmt::print(stderr, "lockstep: internal error at {}:{}: {}{}{}\n", file, line, expression, values.empty() ? "" : ": ",
             values);
  std::fflush(stderr);
  std::abort();
}

std::string CheckText(long long v) {
  return fmt::format("{}", v);
}
std::string CheckText(unsigned long long v) {
  return fmt::format("{}", v);
}
std::string CheckText(double v) {
  return fmt::format("{}", v);
}
std::string CheckText(const void* v) {
  return fmt::format("{}", v);
}

}  // namespace lockstep
