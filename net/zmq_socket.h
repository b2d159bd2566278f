#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/time.h"
#include "net/endpoint.h"
#include "net/network.h"
#include "net/wire.h"

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

 private:
  void* handle_;
  pid_t pid_;
};

// A received message, or why it was refused.
struct ZmqMessage {
  Status status;
  Envelope envelope;
  Message message;
  std::size_t bytes = 0;
};

struct SocketEvent {
  enum Kind { kNone, kAccepted, kReady, kEnded } kind = kNone;
  int connection = -1;  // its descriptor, which is ZeroMQ's
};

// A ZeroMQ socket with its monitor: a ROUTER that serves or a DEALER that calls. All settings are
// in zmq_socket.cc, the only file that includes ZeroMQ. Owner: the thread that opened it. Nothing
// blocks but AwaitClosed.
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

  // Errors: kResourceExhausted.
  Status Open(std::shared_ptr<ZmqContext> context, Kind kind, const Endpoint& endpoint,
              const NetworkOptions& options);
  void Close();
  bool is_open() const;
  // `name` as ZeroMQ spells it. 0, or the errno.
  int Bind(const std::string& name);
  // Serves a listening descriptor, which becomes ZeroMQ's.
  int BindTo(int listening_fd, const std::string& name);
  std::string bound_name() const;  // with the real port
  // Ends listening; returns when the port is free again, or after half a second.
  void Unbind(const std::string& name);
  // Of a client. `routing_id` names it on each connection.
  int Connect(const std::string& name, std::span<const std::byte> routing_id);
  static std::string ErrorText(int error);

  // `route`: the routing id of a server's peer; empty for a client.
  SendResult Send(std::span<const std::byte> route, const Envelope& envelope,
                  const Message& message);
  // False: nothing there. A server also learns who sent it and by which connection, until the next
  // Receive.
  bool Receive(const WireLimits& limits, ZmqMessage& message);
  std::span<const std::byte> sender() const;
  int connection() const;  // -1: unknown (inproc)
  bool CanSend() const;    // a client has a peer with room

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

  std::shared_ptr<ZmqContext> context_;
  std::unique_ptr<Handles> handles_;
  bool look_ = true;
  bool look_events_ = true;
};

}  // namespace troop
