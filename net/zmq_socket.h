#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/time.h"
#include "net/endpoint.h"
#include "net/network.h"
#include "net/wire.h"
#include "net/zmq_zap.h"

namespace troop {

// One ZeroMQ context (one I/O thread, the inproc names) for all networks of the process that live
// at a time. A forked child can't use its parent's and gets its own. Thread safe.
class ZmqContext {
 public:
  static Result<std::shared_ptr<ZmqContext>> Get();
  explicit ZmqContext(void* handle);
  ZmqContext(const ZmqContext&) = delete;
  ~ZmqContext();  // waits at most for the last answers to leave (ZMQ_LINGER)
  void* handle() const { return handle_; }
  // Servers with these keys will be asked for: whoever their list allows comes in.
  Status Admit(const KeyRing& ring);

 private:
  void* handle_;
  pid_t pid_;
  std::mutex mutex_;
  std::unique_ptr<ZapHandler> zap_;  // once there are keys
};

// A received message, or why it was refused.
struct ZmqMessage {
  Status status;
  Envelope envelope;
  Message message;
  std::size_t bytes = 0;
};

struct SocketEvent {
  enum Kind { kNone, kAccepted, kReady, kEnded, kRefused } kind = kNone;
  int connection = -1;  // its descriptor, which is ZeroMQ's; not of kRefused
  // Of kRefused, a handshake that failed. kEnd: the other side, or the network, just ended it.
  enum Refusal { kEnd, kMechanism, kCipher, kNotAllowed, kProtocol } refusal = kEnd;
};

// A ZeroMQ socket with its monitor: a ROUTER that serves or a DEALER that calls. All settings are
// in zmq_socket.cc, which with zmq_zap.cc is all that includes ZeroMQ. Owner: the thread that
// opened it. Nothing blocks but AwaitClosed.
//
// Invariant: `Readable` is true whenever there may be something to read. ZeroMQ's descriptors are
// edge-triggered: readable only until somebody looks, and sending looks too. So after sending, and
// when not all was read, the socket itself must be asked.
class ZmqSocket {
 public:
  enum Kind { kServer, kClient };
  ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ~ZmqSocket();

  // `server`: of a client that has keys and goes by tcp: whom it talks to. Errors:
  // kResourceExhausted; kFailedPrecondition: keys without a ZeroMQ that can use them.
  Status Open(std::shared_ptr<ZmqContext> context, Kind kind, const Endpoint& endpoint,
              const NetworkOptions& options, const PublicKey* server = nullptr);
  void Close();
  bool is_open() const;
  // `name` as ZeroMQ spells it. 0, or the errno.
  int Bind(const std::string& name);
  // At the first address of the host of a tcp endpoint that is one of this machine. Errors:
  // kAlreadyExists: the port is held; kInvalidArgument: the host has no address, or none of this
  // machine.
  Status BindTcp(const Endpoint& endpoint);
  // Serves a listening descriptor, which becomes ZeroMQ's.
  int BindTo(int listening_fd, const std::string& name);
  std::string bound_name() const;  // with the real port
  // Ends listening; returns when the port is free again, or after half a second.
  void Unbind(const std::string& name);
  // Of a client. `routing_id` names it on each connection.
  int Connect(const std::string& name, std::span<const std::byte> routing_id);
  static std::string ErrorText(int error);

  // `route`: the routing id of a server's peer; empty for a client. `share`: big parts go as
  // tickets (net/part_memory.h), as far as there is memory for them.
  SendResult Send(std::span<const std::byte> route, const Envelope& envelope,
                  const Message& message, bool share = false);
  // False: nothing there. A status of kUnavailable: a part lies where this process can't read it. A
  // server also learns who sent it and by which connection, until the next Receive.
  bool Receive(const WireLimits& limits, ZmqMessage& message);
  std::span<const std::byte> sender() const;
  int connection() const;  // -1: unknown (inproc)
  // What the sender's key stands for; kNone: it came without one.
  Role key() const;
  bool CanSend() const;  // a client has a peer with room

  SocketEvent NextEvent();

  // The descriptors to poll, and the results of a poll in the same order.
  void AddPolls(std::vector<pollfd>& polls) const;
  void TakePolls(const pollfd*& results);
  // Whether to call Receive, or NextEvent, until it finds nothing.
  bool TakeReadable();
  bool TakeEventsPending();
  void ReadAgain();  // Receive may find more
  // No system call when nothing happened.
  bool Readable();

 private:
  struct Handles;
  Status OpenMonitor();
  void AllowIpv6(const std::string& name);
  static Status ReceiveRest(Handles& handles, const WireLimits& limits, ZmqMessage& out);

  std::shared_ptr<ZmqContext> context_;
  std::unique_ptr<Handles> handles_;
  bool look_ = true;
  bool look_events_ = true;
};

}  // namespace troop
