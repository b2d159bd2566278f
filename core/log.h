#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace troop {

// One line per event: time, level, role, message. One sink per process, set by the composition
// root: standard error, or a file of the run folder. Thread safe. Before InitLog: standard error.
enum class LogLevel { kDebug, kInfo, kWarning, kError };
struct LogOptions {
  std::string role;  // "actor-3"
  std::string file;  // empty: standard error
  LogLevel level = LogLevel::kInfo;
};
void InitLog(const LogOptions& options);
void LogLine(LogLevel level, std::string_view message);

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
