// External roles, and the address at which this machine is reached.
#include "fleet/roles/external_roles.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "collective/socket/socket.h"
#include "net/transport/endpoint.h"

namespace troop {

bool IsExternal(const Config& config, Role role) {
  return std::ranges::find(config.fleet.external_roles, RoleName(role)) !=
         config.fleet.external_roles.end();
}

// The result is numeric, as other machines may not resolve this one's name.
Result<std::string> LocalAddressTo(std::string_view endpoint) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint there, ParseEndpoint(endpoint));
  if (there.transport != Endpoint::kTcp) {
    return InvalidArgument("{} is not a TCP address", endpoint);
  }
  std::string host = there.address.substr(0, there.address.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  const addrinfo hints{.ai_socktype = SOCK_DGRAM};
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), std::to_string(there.port).c_str(), &hints, &found);
  if (failed != 0) return Unavailable("{}: {}", host, gai_strerror(failed));
  // A name may have several addresses: take the first one with a route.
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  int error = 0;
  // Connecting a UDP socket sends nothing, but makes the kernel choose the route and its source
  // address.
  for (const addrinfo* to = found; to != nullptr; to = to->ai_next) {
    const Socket socket(::socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t bytes = sizeof own;
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    if (!socket.open() || connect(socket.fd(), to->ai_addr, to->ai_addrlen) != 0 ||
        getsockname(socket.fd(), address, &bytes) != 0) {
      error = errno;
      continue;
    }
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(address, bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    return own.ss_family == AF_INET6 ? fmt::format("[{}]", text.data()) : std::string(text.data());
  }
  return Unavailable("no route to {}: {}", host, strerror(error));
}

}  // namespace troop
