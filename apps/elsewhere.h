#pragma once

#include <string>
#include <string_view>

#include "core/config.h"
#include "core/status.h"
#include "net/message.h"

namespace troop {

// Whether the launcher leaves a role to those who join (fleet.elsewhere).
bool IsElsewhere(const Config& config, Role role);

// The address of this machine from which packets to a TCP endpoint go, as in an endpoint
// ("10.0.0.7",
// "[fd00::7]"): where others of its network reach us. Sends nothing. Errors: kInvalidArgument: no
// TCP endpoint; kUnavailable: no way there, or no such name.
Result<std::string> LocalAddressTo(std::string_view endpoint);

}  // namespace troop
