// Status: the result of an operation that can fail through no fault of ours (docs/errors.md, class 2).
//
// Errors:  a code and one line of text that names the file, field or rank and the value
// Threads: a value; no sharing
#pragma once

#include <string>
#include <utility>

namespace lockstep {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,  // a bad flag, request or shape                       exit 2
  kNotFound,         // a file, key or tensor is absent                    exit 3 when it is the model
  kUnsupported,      // legal, but not built: an architecture, a type      exit 3
  kOutOfMemory,      // memory or kv pages                                 exit 4
  kCorruptFile,      // the file contradicts itself or its format          exit 3
  kPeerLost,         // a rank died, stalled or returned wrong data        exit 5
  kTimeout,          // a bounded wait expired without a known culprit     exit 5
  kDeviceError,      // the device or its driver failed                    exit 6
  kMismatch,         // two runs that must agree did not                   exit 7
  kInterrupted,      // the user asked to stop                             exit 130
  kInternal,         // a broken promise of ours                           exit 1
};

// The stable name of a code, e.g. "corrupt_file".
const char* StatusCodeName(StatusCode code);

// The process exit code that a status leads to (docs/errors.md).
int ExitCode(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same status with `context` and ": " before its text; ok stays ok.
  Status WithContext(const std::string& context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() {
  return Status();
}
inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status NotFound(std::string m) {
  return {StatusCode::kNotFound, std::move(m)};
}
inline Status Unsupported(std::string m) {
  return {StatusCode::kUnsupported, std::move(m)};
}
inline Status OutOfMemory(std::string m) {
  return {StatusCode::kOutOfMemory, std::move(m)};
}
inline Status CorruptFile(std::string m) {
  return {StatusCode::kCorruptFile, std::move(m)};
}
inline Status PeerLost(std::string m) {
  return {StatusCode::kPeerLost, std::move(m)};
}
inline Status Internal(std::string m) {
  return {StatusCode::kInternal, std::move(m)};
}

}  // namespace lockstep

#define LS_CONCAT_INNER(a, b) a##b
#define LS_CONCAT(a, b) LS_CONCAT_INNER(a, b)

// Returns the status of `expr` from the enclosing function unless it is ok.
#define LS_RETURN_IF_ERROR(expr)             \
  do {                                       \
    ::lockstep::Status ls_status_ = (expr);  \
    if (!ls_status_.ok()) return ls_status_; \
  } while (0)
