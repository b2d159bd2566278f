// Implements CheckFailed, without fmt so that it works in every build.
#include "core/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace troop {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, condition,
               message.empty() ? "" : ": ", message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace troop
