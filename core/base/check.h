#pragma once

#ifndef TROOP_PLAIN_CHECKS  // build on a GPU machine without fmt
#include <fmt/core.h>
#endif

#include <string>

// TROOP_CHECK(condition, "format", args...) aborts with file, line, condition and message if an
// internal invariant is violated. Failures with external causes are a Status, never a check.
namespace troop {

// Prints the failed check to standard error and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

inline std::string CheckMessage() { return {}; }
#ifdef TROOP_PLAIN_CHECKS
template <class... Args>
std::string CheckMessage(const char* format, const Args&...) {
  return format;
}
#else
template <class... Args>
std::string CheckMessage(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}
#endif

}  // namespace troop

#define TROOP_CHECK(condition, ...)                                                             \
  do {                                                                                          \
    if (!(condition)) [[unlikely]]                                                              \
      ::troop::CheckFailed(__FILE__, __LINE__, #condition, ::troop::CheckMessage(__VA_ARGS__)); \
  } while (false)
