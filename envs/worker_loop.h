#pragma once

namespace troop {

// The life of a worker process that plays plug-ins and native environments (worker_protocol.h):
// talks over descriptor 3, shares 4, until the owner is gone. Returns the exit code.
int RunEnvWorker();

}  // namespace troop
