// LS_CHECK: our own broken preconditions (docs/errors.md, class 1). Prints the expression, both values and the place,
// then aborts. Never for a bad file, a bad request or a lost rank: those are Status.
//
// Threads: any
#pragma once

#include <string>

namespace lockstep {

[[noreturn]] void CheckFailed(const char* file, int line, const char* expression, const std::string& values);

std::string CheckText(long long v);
std::string CheckText(unsigned long long v);
std::string CheckText(double v);
std::string CheckText(const void* v);
inline std::string CheckText(const std::string& v) {
  return v;
}
inline std::string CheckText(const char* v) {
  return v;
}
inline std::string CheckText(bool v) {
  return v ? "true" : "false";
}
inline std::string CheckText(int v) {
  return CheckText(static_cast<long long>(v));
}
inline std::string CheckText(long v) {
  return CheckText(static_cast<long long>(v));
}
inline std::string CheckText(unsigned v) {
  return CheckText(static_cast<unsigned long long>(v));
}
inline std::string CheckText(unsigned long v) {
  return CheckText(static_cast<unsigned long long>(v));
}

}  // namespace lockstep

#define LS_CHECK(condition)                                                   \
  do {                                                                        \
    if (!(condition)) [[unlikely]]                                            \
      ::lockstep::CheckFailed(__FILE__, __LINE__, #condition, std::string()); \
  } while (0)

#define LS_CHECK_OP_(a, b, op)                                                                            \
  do {                                                                                                    \
    const auto& ls_a_ = (a);                                                                              \
    const auto& ls_b_ = (b);                                                                              \
    if (!(ls_a_ op ls_b_)) [[unlikely]]                                                                   \
      ::lockstep::CheckFailed(__FILE__, __LINE__, #a " " #op " " #b,                                      \
                              ::lockstep::CheckText(ls_a_) + " against " + ::lockstep::CheckText(ls_b_)); \
  } while (0)

#define LS_CHECK_EQ(a, b) LS_CHECK_OP_(a, b, ==)
#define LS_CHECK_NE(a, b) LS_CHECK_OP_(a, b, !=)
#define LS_CHECK_LT(a, b) LS_CHECK_OP_(a, b, <)
#define LS_CHECK_LE(a, b) LS_CHECK_OP_(a, b, <=)
#define LS_CHECK_GT(a, b) LS_CHECK_OP_(a, b, >)
#define LS_CHECK_GE(a, b) LS_CHECK_OP_(a, b, >=)
