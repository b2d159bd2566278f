// Error messages on standard error, with a prefix on each line.
#include "fleet/launcher/error_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "fleet/launcher/exit_code.h"

namespace troop {

// Splits at newlines; trailing newlines are dropped.
void PrintError(std::string_view message) {
  while (message.ends_with('\n')) message.remove_suffix(1);
  for (;;) {
    const std::size_t end = std::min(message.find('\n'), message.size());
    fmt::print(stderr, "troop: {}\n", message.substr(0, end));
    if (end == message.size()) return;
    message.remove_prefix(end + 1);
  }
}

int PrintError(const Status& status) {
  PrintError(status.message());
  return ExitCodeFor(status);
}

}  // namespace troop
