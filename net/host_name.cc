#include "net/host_name.h"

#include <netdb.h>
#include <sys/socket.h>

#include <string>

#include "net/endpoint.h"

namespace troop {

Status FindHost(std::string_view endpoint) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  if (parsed.transport != Endpoint::kTcp) return Status::Ok();
  std::string host = parsed.address.substr(0, parsed.address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  if (error == 0) {
    freeaddrinfo(found);
    return Status::Ok();
  }
  return Unavailable("the name {} has no address ({})", host, gai_strerror(error));
}

}  // namespace troop
