// Implements non-blocking TCP sockets.
#include "collective/socket/socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace troop {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Resolves "host:port", which may block on DNS.
Result<AddressList> Resolve(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  std::string host(address.substr(0, colon));
  if (colon == std::string_view::npos || host.empty()) {
    return InvalidArgument("{:?} is not an address; use host:port", address);
  }
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::string port(address.substr(colon + 1));
  // Checked here because getaddrinfo accepts 99999 as 34463.
  std::uint16_t number = 0;
  const auto [end, bad] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (bad != std::errc() || end != port.data() + port.size()) {
    return InvalidArgument("{:?} is not an address: {:?} is not a port (0 to 65535)", address,
                           port);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return InvalidArgument("{:?} is not an address: {}", address, gai_strerror(error));
  }
  return AddressList(found, &freeaddrinfo);
}

Socket Open(const addrinfo& address) {
  return Socket(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Without Nagle's algorithm: small operations must leave at once.
void SetNoDelay(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// The numeric address without the port; empty if there is none.
std::string HostOf(const Socket& socket, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST] = {};
  if (name(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, nullptr, 0,
              NI_NUMERICHOST);
  return host;
}

}  // namespace

// Closes the old descriptor.
Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Socket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

// Uses the first resolved address.
Result<Socket> ListenOn(std::string_view address, int backlog) {
  TROOP_ASSIGN_OR_RETURN(const AddressList found, Resolve(address));
  Socket socket = Open(*found);
  // Connections of a previous process in TIME_WAIT must not block its port.
  const int yes = 1;
  if (socket.open()) setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!socket.open() || bind(socket.fd(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(socket.fd(), backlog) != 0) {
    if (errno == EADDRINUSE) {
      return AlreadyExists(
          "cannot listen on {}: the port is in use; stop the other process, or use another port",
          address);
    }
    return Unavailable("cannot listen on {}: {}", address, std::strerror(errno));
  }
  return socket;
}

Result<Socket> AcceptFrom(const Socket& listener) {
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.open()) return Unavailable("no connection to accept: {}", std::strerror(errno));
  SetNoDelay(socket);
  return socket;
}

// EINPROGRESS is the usual result of a non-blocking connect.
Result<Socket> BeginConnect(std::string_view address) {
  TROOP_ASSIGN_OR_RETURN(const AddressList found, Resolve(address));
  Socket socket = Open(*found);
  if (!socket.open()) return Unavailable("cannot create a socket: {}", std::strerror(errno));
  if (connect(socket.fd(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
    return Unavailable("cannot connect to {}: {}", address, std::strerror(errno));
  }
  SetNoDelay(socket);
  return socket;
}

// Result of a connect that has ended.
Status ConnectError(const Socket& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? Status::Ok() : Unavailable("{}", std::strerror(error));
}

// A small send buffer bounds the bytes in flight.
void LimitBytesInFlight(const Socket& socket) {
  const int bytes = 128 * 1024;
  const std::string here = HostOf(socket, &getsockname);
  if (here.empty() || here != HostOf(socket, &getpeername)) return;
  setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

// IPv6 addresses are bracketed.
std::string AddressOf(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  if (getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                       : fmt::format("{}:{}", host, port);
}

}  // namespace troop
