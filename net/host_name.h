#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "net/endpoint.h"

namespace troop {

// Whether the host of a tcp endpoint has an address by now; others always do. A name may get one,
// or another one, while a fleet runs (a pod that is not there yet, a service that moves): a channel
// looks it up anew each time it connects, and keeps trying, so this is only for telling people.
// Blocks on the name server. Errors: kInvalidArgument: no endpoint; kUnavailable: it has none.
Status FindHost(std::string_view endpoint);

// The addresses of the host of a tcp endpoint, as endpoints spell them ("127.0.0.1", "[::1]"), IPv4
// before IPv6; "*" stays as it is. Blocks on the name server. Errors: kUnavailable: it has none.
// REQUIRES: kTcp.
Result<std::vector<std::string>> AddressesOf(const Endpoint& endpoint);

// The same endpoint; where its host is a name that has IPv6 addresses alone, with the first of
// these in its place, as ZeroMQ looks names up for IPv4. Blocks on the name server.
std::string WithUsableHost(std::string_view endpoint);

}  // namespace troop
