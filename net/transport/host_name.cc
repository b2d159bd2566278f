// Implements name resolution for tcp endpoints.
#include "net/transport/host_name.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>

namespace troop {

// Blocks while the system resolves the name. Reverse lookups are not made (NI_NUMERICHOST).
Result<std::vector<std::string>> ResolveAddresses(const Endpoint& endpoint) {
  std::string host = endpoint.address.substr(0, endpoint.address.rfind(':'));
  std::vector<std::string> addresses;
  // The wildcard stands for all interfaces and is not a name.
  if (host == "*") return std::vector<std::string>{host};
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const addrinfo wanted{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  if (error != 0) {
    return Unavailable("can't resolve {} ({})", host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
  // IPv4 first; duplicates are removed.
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      std::array<char, NI_MAXHOST> text{};
      if (at->ai_family != family || getnameinfo(at->ai_addr, at->ai_addrlen, text.data(),
                                                 text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
        continue;
      }
      std::string address = text.data();
      if (family == AF_INET6) address = fmt::format("[{}]", address);
      if (std::ranges::find(addresses, address) == addresses.end()) {
        addresses.push_back(std::move(address));
      }
    }
  }
  if (addresses.empty()) return Unavailable("can't resolve {}: no usable address", host);
  return addresses;
}

Status CheckHostResolves(std::string_view endpoint) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  if (parsed.transport != Endpoint::kTcp) return Status::Ok();
  return ResolveAddresses(parsed).status();
}

// A name with an IPv4 address stays as it is.
std::string ReplaceIpv6OnlyHost(std::string_view endpoint) {
  const Result<Endpoint> parsed = ParseEndpoint(endpoint);
  if (!parsed.ok() || parsed->transport != Endpoint::kTcp) return std::string(endpoint);
  const auto addresses = ResolveAddresses(*parsed);
  if (!addresses.ok() || !addresses->front().starts_with('[')) return std::string(endpoint);
  const std::size_t host = parsed->address.rfind(':');
  // Keeps port and key, which follow the host.
  constexpr std::string_view kTcp = "tcp://";
  return fmt::format("{}{}{}", kTcp, addresses->front(), endpoint.substr(kTcp.size() + host));
}

}  // namespace troop
