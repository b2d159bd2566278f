#pragma once

#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include "core/base/status.h"
#include "net/transport/endpoint.h"

// Sockets of the HTTP server: descriptors, addresses and listening.
namespace troop {

// Owns a file descriptor. Movable; -1: none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { Close(); }
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// Connections that the kernel accepts before the server does.
inline constexpr int kHttpBacklog = 128;
// Parses HOST:PORT. Errors: kInvalidArgument, with the valid form.
Result<Endpoint> ParseHttpAddress(std::string_view address);
// Opens a listening socket at the first address of the host that belongs to this machine. Errors:
// kInvalidArgument; kAlreadyExists: the port is in use (with the process if known).
Result<Descriptor> ListenForHttp(const Endpoint& endpoint);
// The host with the port that the socket is bound to.
std::string BoundAddress(int fd, std::string_view host);
// The numeric address of a connection's other side, without the port; an IPv6 address is cut to its
// network of 64 bits, which one client usually owns.
std::string PeerAddress(int fd);

}  // namespace troop
