// Messages for a person, on stderr: stdout belongs to the command's result.
//
// Threads: any
#pragma once

#include <string>

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void SetLogLevel(LogLevel level);
void Log(LogLevel level, const std::string& text);

inline void LogInfo(const std::string& text) {
  Log(LogLevel::kInfo, text);
}
inline void LogWarning(const std::string& text) {
  Log(LogLevel::kWarning, text);
}

}  // namespace lockstep
