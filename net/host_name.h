#pragma once

#include <string_view>

#include "core/status.h"

namespace troop {

// Whether the host of a tcp endpoint has an address by now; others always do. A name may get one,
// or another one, while a fleet runs (a pod that is not there yet, a service that moves): a channel
// looks it up anew each time it connects, and keeps trying, so this is only for telling people.
// Blocks on the name server. Errors: kInvalidArgument: no endpoint; kUnavailable: it has none.
Status FindHost(std::string_view endpoint);

}  // namespace troop
