// Implements the addresses and the listening sockets of the HTTP server.
#include "apps/monitor/http_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "net/transport/host_name.h"

namespace troop {
namespace {

// Opens a listening socket at one address of ResolveAddresses. `error`: errno, 0 on success.
Descriptor ListenAtAddress(std::string host, std::uint16_t port, int* error) {
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  const addrinfo hints{
      .ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  *error = EADDRNOTAVAIL;
  if (getaddrinfo(host == "*" ? "0.0.0.0" : host.c_str(), std::to_string(port).c_str(), &hints,
                  &found) != 0) {
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  Descriptor fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (fd.get() >= 0) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool listens = fd.get() >= 0 && bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                       listen(fd.get(), kHttpBacklog) == 0;
  *error = listens ? 0 : errno;
  return listens ? std::move(fd) : Descriptor();
}

}  // namespace

// Reuses the endpoint parser; a key suffix ("#…") is not part of an HTTP address.
Result<Endpoint> ParseHttpAddress(std::string_view address) {
  const Result<Endpoint> endpoint = ParseEndpoint("tcp://" + std::string(address));
  if (endpoint.ok() && !endpoint->key) return endpoint;
  if (std::ranges::count(address, ':') > 1) {
    const std::size_t port = address.rfind(':');
    return InvalidArgument("\"{}\" is not HOST:PORT; put an IPv6 address in brackets: [{}]:{}",
                           address, address.substr(0, port), address.substr(port + 1));
  }
  return InvalidArgument(
      "\"{}\" is not HOST:PORT with a port of at most 65535, such as 127.0.0.1:9464", address);
}

// The host with the port that the socket is bound to.
std::string BoundAddress(int fd, std::string_view host) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  const std::uint16_t port = bound.ss_family == AF_INET6
                                 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                 : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  return fmt::format("{}:{}", host, ntohs(port));
}

// Opens a listening socket at the first address of the host that belongs to this machine.
// `endpoint`: from ParseHttpAddress.
Result<Descriptor> ListenForHttp(const Endpoint& endpoint) {
  const auto hosts = ResolveAddresses(endpoint);
  if (!hosts.ok()) {
    return InvalidArgument("can't listen on {}: {}", endpoint.address, hosts.status().message());
  }
  std::string tried;
  for (const std::string& host : *hosts) {
    int error = 0;
    Descriptor fd = ListenAtAddress(host, endpoint.port, &error);
    if (error == 0) return fd;
    if (error == EADDRINUSE) {
      const pid_t holder = FindPortOwner(endpoint.port);
      return AlreadyExists("{}: the port is in use by {}; stop it, or use another port",
                           endpoint.address,
                           holder == 0 ? "another process" : fmt::format("process {}", holder));
    }
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", host, strerror(error));
  }
  return InvalidArgument("can't listen on {} ({})", endpoint.address, tried);
}

// IPv4 clients of a socket for both families have mapped addresses, which stay whole.
std::string PeerAddress(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET6) {
    in6_addr address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
    if (!IN6_IS_ADDR_V4MAPPED(&address)) memset(address.s6_addr + 8, 0, 8);
    inet_ntop(AF_INET6, &address, text, sizeof text);
  } else {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(peer).sin_addr, text, sizeof text);
  }
  return text;
}

}  // namespace troop
