#pragma once

#include <fmt/core.h>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace troop {

// Logging: one line per event with time, level, role and message. Each process has one sink, set by
// InitLog: standard error (the default), or a file in the run folder. Thread safe.
enum class LogLevel { kDebug, kInfo, kWarning, kError };
constexpr auto EnumNames(LogLevel) {
  return std::to_array<std::string_view>({"debug", "info", "warning", "error"});
}
// Options of InitLog.
struct LogOptions {
  std::string role;  // "actor-3"
  std::string file;  // empty: standard error
  LogLevel level = LogLevel::kInfo;
};
void InitLog(const LogOptions& options);
void LogLine(LogLevel level, std::string_view message);

// Format a line with the given level.
template <class... Args>
void LogDebug(fmt::format_string<Args...> f, Args&&... args) {
  LogLine(LogLevel::kDebug, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void LogInfo(fmt::format_string<Args...> f, Args&&... args) {
  LogLine(LogLevel::kInfo, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void LogWarning(fmt::format_string<Args...> f, Args&&... args) {
  LogLine(LogLevel::kWarning, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void LogError(fmt::format_string<Args...> f, Args&&... args) {
  LogLine(LogLevel::kError, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace troop
