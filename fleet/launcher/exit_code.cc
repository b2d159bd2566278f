// Implements the map of status codes to exit codes.
#include "fleet/launcher/exit_code.h"

namespace troop {

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
