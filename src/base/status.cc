#include "base/status.h"

namespace lockstep {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kNotFound:
      return "not_found";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kOutOfMemory:
      return "out_of_memory";
    case StatusCode::kCorruptFile:
      return "corrupt_file";
    case StatusCode::kPeerLost:
      return "peer_lost";
    case StatusCode::kTimeout:
      return "timeout";
    case StatusCode::kDeviceError:
      return "device_error";
    case StatusCode::kMismatch:
      return "mismatch";
    case StatusCode::kInterrupted:
      return "interrupted";
    case StatusCode::kInternal:
      return "internal";
  }
  return "unknown";
}

int ExitCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kInvalidArgument:
      return 2;
    case StatusCode::kNotFound:
    case StatusCode::kUnsupported:
    case StatusCode::kCorruptFile:
      return 3;
    case StatusCode::kOutOfMemory:
      return 4;
    case StatusCode::kPeerLost:
    case StatusCode::kTimeout:
      return 5;
    case StatusCode::kDeviceError:
      return 6;
    case StatusCode::kMismatch:
      return 7;
    case StatusCode::kInterrupted:
      return 130;
    case StatusCode::kInternal:
      return 1;
  }
  return 1;
}

Status Status::WithContext(const std::string& context) const {
  if (ok()) return *this;
  return Status(code_, context + ": " + message_);
}

}  // namespace lockstep
