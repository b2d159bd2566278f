#pragma once

#include <string_view>

#include "core/base/status.h"

namespace troop {

// Writes a message to standard error, each of its lines as "troop: LINE".
void PrintError(std::string_view message);
// Likewise for a failed status; returns its exit code (ExitCodeFor).
int PrintError(const Status& status);

}  // namespace troop
