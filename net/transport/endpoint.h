#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "net/security/keys.h"

namespace troop {

// A parsed endpoint:
// - ipc:///folder/name: a Unix socket, at most 107 bytes of path
// - tcp://host:port: host "*" means all interfaces, port 0 or "*" any free port (to listen only)
// - inproc://name: threads of one process
//
// A tcp address may be followed by "#<64 hexadecimal digits>", the public key of the server. A
// client that gets such an endpoint from a trusted source can authenticate the server. The key is
// ignored to listen.
struct Endpoint {
  enum Transport { kIpc, kTcp, kInproc } transport = kIpc;
  std::string address;             // path, host:port, or name
  std::uint16_t port = 0;          // kTcp
  std::optional<PublicKey> key{};  // kTcp: public key of the server
};
// Parses an endpoint. Errors: kInvalidArgument.
Result<Endpoint> ParseEndpoint(std::string_view text);

// True for a loopback TCP address: 127.x.x.x, [::1] or localhost.
bool IsLoopback(const Endpoint& endpoint);

// Checks that a server may listen there: without keys and `insecure` only on loopback addresses.
// Errors: kInvalidArgument, with the remedy.
Status CheckMayListen(std::string_view endpoint, bool keys, bool insecure);

// Returns the process that listens on a TCP port of this machine; 0 if none is found or visible to
// this user.
pid_t FindPortOwner(std::uint16_t port);

// A bound and listening Unix socket that no other process can take over. ZeroMQ, like any bind
// after unlink, silently takes a path from the process that serves it. Therefore a lock on
// "<path>.lock", which holds the process id, is acquired first; a socket file found while holding
// the lock is stale and is replaced. Only this user may connect. Movable; the destructor removes
// the file, then the lock.
class IpcSocket {
 public:
  IpcSocket() = default;
  IpcSocket(IpcSocket&& other) noexcept;
  IpcSocket& operator=(IpcSocket&& other) noexcept;
  ~IpcSocket();
  // Binds and listens. Errors: kAlreadyExists: in use by this or another process (named);
  // kInvalidArgument: the folder is missing or not accessible.
  static Result<IpcSocket> Bind(const std::string& path);
  // Transfers ownership of the listening socket; the file and the lock stay with *this.
  int ReleaseFd();

 private:
  std::string path_;
  int lock_ = -1;
  int fd_ = -1;
};

}  // namespace troop
