// core/base/log.h without spdlog: everything goes to standard error.
#include "core/base/log.h"

#include <cstdio>

namespace troop {

void InitLog(const LogOptions&) {}

void LogLine(LogLevel level, std::string_view message) {
  constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  std::fprintf(stderr, "%s: %.*s\n", kNames[int(level)], int(message.size()), message.data());
}

}  // namespace troop
