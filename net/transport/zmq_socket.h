#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "core/metrics/package_version.h"
#include "net/network.h"
#include "net/security/zmq_zap.h"
#include "net/transport/endpoint.h"
#include "net/wire/frame.h"

namespace troop {

// Version of the loaded ZeroMQ library.
PackageVersion ZmqPackage();

// The ZeroMQ context (one I/O thread, the inproc names) that all networks of the process share. A
// forked child can't use the context of its parent and gets a new one. Thread safe.
class ZmqContext {
 public:
  static Result<std::shared_ptr<ZmqContext>> Get();
  explicit ZmqContext(void* handle);
  ZmqContext(const ZmqContext&) = delete;
  ~ZmqContext();  // waits at most ZMQ_LINGER for the last answers
  void* handle() const { return handle_; }
  // Registers the keys of a server, so that clients on its list of allowed keys are admitted.
  Status Admit(const KeyRing& ring);

 private:
  void* handle_;
  pid_t pid_;
  // Guards zap_.
  std::mutex mutex_;
  std::unique_ptr<ZapHandler> zap_;  // null until keys are registered
};

// A received message, or the reason why it is invalid.
struct ZmqMessage {
  Status status;
  Envelope envelope;
  Message message;
  std::size_t bytes = 0;
};

// A change of the connections of a socket.
struct SocketEvent {
  enum Kind { kNone, kAccepted, kReady, kEnded, kRefused } kind = kNone;
  int connection = -1;  // descriptor, owned by ZeroMQ; not set for kRefused
  // Reason of kRefused, a failed handshake; kEnd: the peer or the network closed the connection.
  enum Refusal { kEnd, kMechanism, kCipher, kNotAllowed, kProtocol } refusal = kEnd;
};

// A ZeroMQ socket with its monitor: a ROUTER (server) or a DEALER (client). All settings are in
// zmq_socket.cc; only that file and zmq_zap.cc include ZeroMQ. Owner: the thread that opened it.
// Nothing blocks except Unbind.
//
// Invariant: `Readable` is true whenever there may be something to read. The descriptors of ZeroMQ
// are edge-triggered: they become unreadable at the next call on the socket, and sending is such a
// call. So after sending, and after an incomplete read, the socket itself must be queried.
class ZmqSocket {
 public:
  enum Kind { kServer, kClient };
  ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ~ZmqSocket();

  // Opens a socket. `server`: for a tcp client with keys, the expected server key. Errors:
  // kResourceExhausted; kFailedPrecondition: keys with a ZeroMQ that does not support them.
  Status Open(std::shared_ptr<ZmqContext> context, Kind kind, const Endpoint& endpoint,
              const NetworkOptions& options, const PublicKey* server = nullptr);
  void Close();
  bool is_open() const;
  // Binds a name in the notation of ZeroMQ. Returns 0 or the errno.
  int Bind(const std::string& name);
  // Binds to the first address of the host of a tcp endpoint that belongs to this machine. Errors:
  // kAlreadyExists: the port is in use; kInvalidArgument: the host has no address, or none of this
  // machine.
  Status BindTcp(const Endpoint& endpoint);
  // Serves a listening descriptor and takes ownership of it.
  int BindTo(int listening_fd, const std::string& name);
  std::string bound_name() const;  // name with the actual port
  // Stops listening. Returns when the port is free again, or after half a second.
  void Unbind(const std::string& name);
  // Connects a client; `routing_id` identifies it on every connection. Returns 0 or the errno.
  int Connect(const std::string& name, std::span<const std::byte> routing_id);
  static std::string ErrorText(int error);

  // Sends a message. `route`: the routing id of a server's peer; empty for a client. `share`: send
  // big parts as tickets (net/wire/shared_memory.h) as long as there is memory for them.
  SendResult Send(std::span<const std::byte> route, const Envelope& envelope,
                  const Message& message, bool share = false);
  // Receives a message; false if there is none. Its status is kUnavailable if this process can't
  // read the memory of a part. On a server the next three methods describe the sender until the
  // next Receive.
  bool Receive(const WireLimits& limits, ZmqMessage& message);
  std::span<const std::byte> sender() const;
  int connection() const;  // descriptor; -1: unknown (inproc)
  // Role of the sender's key; kNone without a key.
  Role key() const;
  bool CanSend() const;  // true if a client has a peer with room

  SocketEvent NextEvent();

  // Add the descriptors to poll, and take the results in the same order.
  void AddPolls(std::vector<pollfd>& polls) const;
  void TakePolls(const pollfd*& results);
  // True if Receive (or NextEvent) must be called until it finds nothing.
  bool TakeReadable();
  bool TakeEventsPending();
  void ReadAgain();  // makes TakeReadable true again, after an incomplete read
  // True if there may be something to read. No system call if nothing happened.
  bool Readable();

 private:
  struct Handles;
  Status OpenMonitor();
  void AllowIpv6(const std::string& name);
  static Status ReceiveRest(Handles& handles, const WireLimits& limits, ZmqMessage& out);

  std::shared_ptr<ZmqContext> context_;
  std::unique_ptr<Handles> handles_;
  // True if the socket (or its monitor) may have something to read.
  bool look_ = true;
  bool look_events_ = true;
};

}  // namespace troop
