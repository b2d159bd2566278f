#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"
#include "net/keys.h"

namespace troop {

// ipc:///folder/name (at most 107 bytes of path), tcp://host:port (host "*": all interfaces; port 0
// or "*": any free one, to listen only), inproc://name (threads of one process). Behind a tcp
// address "#<64 hexadecimal digits>" is the public key of who listens there: whoever is told such
// an endpoint by somebody it trusts knows whom it talks to. To listen, it counts for nothing.
struct Endpoint {
  enum Transport { kIpc, kTcp, kInproc } transport = kIpc;
  std::string address;             // the path, host:port, or the name
  std::uint16_t port = 0;          // kTcp
  std::optional<PublicKey> key{};  // kTcp: of the server
};
// Errors: kInvalidArgument.
Result<Endpoint> ParseEndpoint(std::string_view text);

// A TCP address of this very machine: 127.x.x.x, [::1] or localhost.
bool IsLoopback(const Endpoint& endpoint);

// Whether a server may listen there: without keys and `insecure` only where this machine alone
// comes to. Errors: kInvalidArgument, with what to do.
Status CheckMayListen(std::string_view endpoint, bool keys, bool insecure);

// The process that listens on a TCP port of this machine; 0: none found (or not ours to see).
pid_t HolderOfPort(std::uint16_t port);

// A bound and listening Unix socket that nobody can steal: ZeroMQ, like any bind after unlink,
// takes a path away from whoever serves it, silently. So a lock on "<path>.lock", which holds our
// process id, comes first; a socket file found under our own lock is stale and is replaced. Only
// this user may connect. Movable; the destructor removes the file, then the lock.
class IpcSocket {
 public:
  IpcSocket() = default;
  IpcSocket(IpcSocket&& other) noexcept;
  IpcSocket& operator=(IpcSocket&& other) noexcept;
  ~IpcSocket();
  // Errors: kAlreadyExists: served by another process (named) or by us; kInvalidArgument: the
  // folder is missing or closed to us.
  static Result<IpcSocket> Bind(const std::string& path);
  // Gives the listening socket away; the file and the lock stay with *this.
  int ReleaseFd();

 private:
  std::string path_;
  int lock_ = -1;
  int fd_ = -1;
};

}  // namespace troop
