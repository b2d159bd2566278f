#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "fleet/config/config.h"
#include "net/message.h"

namespace troop {

// True if the role is external: the launcher does not start it (fleet.external_roles).
bool IsExternal(const Config& config, Role role);

// Local address of the route to a TCP endpoint, in the form of an endpoint ("10.0.0.7",
// "[fd00::7]"): other machines of that network reach this one there. Sends nothing. Errors:
// kInvalidArgument: not a TCP endpoint; kUnavailable: no route, or the name does not resolve.
Result<std::string> LocalAddressTo(std::string_view endpoint);

}  // namespace troop
