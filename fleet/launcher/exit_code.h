#pragma once

#include "core/base/status.h"

namespace troop {

// Exit codes of the program (docs/reference/commands.md).
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,         // the run failed; the last line has the reason
  kExitUsage = 2,          // command line or config; nothing was started
  kExitInUse = 3,          // run folder, port or socket held by another process
  kExitDamaged = 4,        // a file of the run is damaged
  kExitGaveUp = 5,         // a role failed in a way that no restart fixes; the run ends
  kExitInterrupted = 130,  // Ctrl-C, SIGTERM or SIGHUP; drained, resumable
};
int ExitCodeFor(const Status& status);

}  // namespace troop
