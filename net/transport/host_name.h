#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "net/transport/endpoint.h"

namespace troop {

// Checks that the host of a tcp endpoint resolves to an address; other endpoints pass. A name may
// get an address, or a different one, while a fleet runs (a pod that does not exist yet, a service
// that moves). A channel resolves it at each connection attempt and retries, so this check serves
// diagnostics only. Blocks on the name server. Errors: kInvalidArgument: invalid endpoint;
// kUnavailable: no address.
Status CheckHostResolves(std::string_view endpoint);

// Returns the addresses of the host of a tcp endpoint in endpoint notation ("127.0.0.1", "[::1]"),
// IPv4 before IPv6; "*" is unchanged. Blocks on the name server. Errors: kUnavailable: no address.
// REQUIRES: kTcp.
Result<std::vector<std::string>> ResolveAddresses(const Endpoint& endpoint);

// Returns the endpoint with a host name that has only IPv6 addresses replaced by the first of
// these, because ZeroMQ resolves names to IPv4 only. Other endpoints are unchanged. Blocks on the
// name server.
std::string ReplaceIpv6OnlyHost(std::string_view endpoint);

}  // namespace troop
