#pragma once

namespace troop {

// Main loop of a worker process that plays plug-ins and native environments (protocol.h). It
// uses descriptor 3 as the socket and 4 as the shared memory, until the owner exits. Returns the
// exit code.
int RunEnvWorker();

}  // namespace troop
