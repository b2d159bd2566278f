// Implements the map of status codes to exit codes.
#include "fleet/launcher/exit_code.h"

namespace troop {

// Grouped by remedy: the command line, a running process, a damaged file. kExitFailed is the rest.
int ExitCodeFor(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return kExitOk;
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kOutOfRange:
      return kExitUsage;
    case Code::kAlreadyExists:
      return kExitInUse;
    case Code::kDataLoss:
      return kExitDamaged;
    default:
      return kExitFailed;
  }
}

}  // namespace troop
