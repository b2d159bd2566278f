#pragma once

#ifndef TROOP_PLAIN_CHECKS  // a build for a GPU machine, where there is no fmt
#include <fmt/core.h>
#endif

#include <string>

// TROOP_CHECK(condition, "format", args...): a broken promise of ours aborts with file, line, the
// condition and the message. Misfortunes of the world are Status, never a check.
namespace troop {

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
