// Result<T>: a value or the Status that says why there is none. (std::expected is C++23.)
//
// Threads: a value; no sharing
#pragma once

#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace lockstep {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: a value converts on return
  Result(Status status) : status_(std::move(status)) {  // NOLINT: so does an error
    LS_CHECK(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & {
    LS_CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    LS_CHECK(ok());
    return *value_;
  }
  // By value, not T&&: a range-for over MakeX().value() then keeps the value alive.
  T value() && {
    LS_CHECK(ok());
    return std::move(*value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace lockstep

// LS_ASSIGN_OR_RETURN(auto x, MakeX()): assigns the value, or returns the error from the enclosing function.
#define LS_ASSIGN_OR_RETURN(lhs, expr) LS_ASSIGN_OR_RETURN_(LS_CONCAT(ls_result_, __LINE__), lhs, expr)
#define LS_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                         \
  if (!tmp.ok()) return tmp.status();        \
  lhs = std::move(tmp).value()
