#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "net/transport/endpoint.h"

namespace troop {

// Checks that the host of a tcp endpoint resolves to an address; other endpoints pass. The address
// of a name may appear or change while a fleet runs (a pod that does not exist yet, a service that
// moves). A channel resolves the name again at each connection attempt, so this check is only for
// diagnostics. Blocks on the name server. Errors: kInvalidArgument: invalid endpoint; kUnavailable:
// no address.
Status CheckHostResolves(std::string_view endpoint);

// Returns the addresses of a tcp endpoint's host, as they are written in endpoints ("127.0.0.1",
// "[::1]"), IPv4 before IPv6; the host "*" is returned as it is. Blocks on the name server. Errors:
// kUnavailable: no address. REQUIRES: endpoint.transport is kTcp.
Result<std::vector<std::string>> ResolveAddresses(const Endpoint& endpoint);

// If the endpoint's host name has only IPv6 addresses, returns the endpoint with the first of them
// instead of the name, because ZeroMQ resolves names only to IPv4. Returns other endpoints
// unchanged. Blocks on the name server.
std::string ReplaceIpv6OnlyHost(std::string_view endpoint);

}  // namespace troop
