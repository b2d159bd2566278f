#pragma once

#include "core/config.h"

namespace troop {

// `troop replay CONFIG`: a replay by itself, for clients that speak docs/protocol.md. Serves
// replay.tables, or where there are none the table that a run of this config would have, at
// replay.listen until SIGTERM or SIGINT. Returns the exit code.
int ServeReplay(const Config& config);

}  // namespace troop
