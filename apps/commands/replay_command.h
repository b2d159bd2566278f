#pragma once

#include "apps/command_line.h"
#include "fleet/config/config.h"

namespace troop {

// `troop replay CONFIG`: a standalone replay for clients of the protocol in
// docs/design/protocol.md. Serves replay.tables at replay.listen until SIGTERM or SIGINT; without
// tables it serves the one that a run of this config would have. Returns the exit code.
int ServeReplay(const Config& config);

// Adds `troop replay` to `app`.
void RegisterReplay(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
