#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/base/time.h"
#include "net/message.h"

namespace troop {

class KeyRing;  // net/security/keys.h

using Ticket = std::uint64_t;  // identifies a call of a channel; 0: none

// State of the other side of a channel.
enum class PeerState {
  kConnecting,  // no message received yet
  kUp,
  kHung,  // connected, but its node sent nothing for NetworkOptions::dead_after
  kDown,  // disconnected, or its I/O thread did not respond for dead_after
};

// Options of one channel.
struct ChannelOptions {
  Origin origin;    // role, index, incarnation, epoch of this side
  int window = 16;  // maximum number of open or unpolled calls; Send rejects more
  // Limit of the bytes in flight; a call that exceeds it is sent only while no other is open.
  std::size_t window_bytes = std::size_t{64} << 20;
};

// The client side of a connection to one service. Owner: the node's thread. Nothing blocks.
//
// A call stays open until it is answered, its deadline passes, or Forget drops it. A lost
// connection does not end it: the channel reconnects and sends unanswered calls again with the same
// sequence numbers. The server answers repeats from memory, so one server process applies a call at
// most once. Send rejects the 4,096th call after the oldest open one (kSequenceSpanMax), so calls
// that stay open for minutes during a stream of others need a separate channel. Send may be called
// between two calls of Network::Pump; the message is sent at once. A channel may outlive its
// Network; then it sends and receives nothing.
class Channel {
 public:
  virtual ~Channel() = default;
  // Starts a call; moves from `message` only on success. Errors: kResourceExhausted: the window is
  // full (poll, then retry); kInvalidArgument: larger than the wire limit; the error of a channel
  // that failed permanently.
  virtual Result<Ticket> Send(Message& message, Time deadline) = 0;
  // Returns the answer once, which invalidates the ticket; nullopt if there is none yet. Errors:
  // kDeadlineExceeded; kAborted: the server fenced this incarnation; or the error of the service
  // (kError).
  virtual std::optional<Result<Message>> Poll(Ticket ticket) = 0;
  // Drops a call; its answer is discarded.
  virtual void Forget(Ticket ticket) = 0;
  virtual bool CanSend() const = 0;   // true if the window has room for one small call
  virtual int in_flight() const = 0;  // number of open or unpolled calls
  virtual PeerState peer() const = 0;
};

// Answers one call, at most once. A service that answers later keeps the Reply until then. Movable.
// If it is destroyed without an answer, the caller gets kInternal. After the peer has disconnected,
// answers have no effect.
class Reply {
 public:
  // The transport's side of a Reply.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void Answer(Message message) = 0;
  };
  Reply() = default;
  explicit Reply(std::unique_ptr<Sink> sink) : sink_(std::move(sink)) {}
  Reply(Reply&&) = default;
  Reply& operator=(Reply&&) noexcept;
  ~Reply();
  // Answers with a message. REQUIRES: not answered yet.
  void Send(Message message);
  // Answers with an error. REQUIRES: not answered yet; `status` is not ok.
  void Fail(const Status& status);
  // True if not answered yet.
  explicit operator bool() const { return sink_ != nullptr; }

 private:
  std::unique_ptr<Sink> sink_;
};

// The handler of a server. Network::Pump calls it on the node's thread.
class Service {
 public:
  virtual ~Service() = default;
  // Handles a call. Never called twice for one call (net/ answers repeats), nor for a fenced
  // incarnation.
  virtual void Handle(Message message, Reply reply) = 0;
  // Decides whether to admit a client whose incarnation is newer than all known ones of its (role,
  // index); admission fences the older ones. An error rejects the client and fences nothing. The
  // client retries soon after kUnavailable, and stops after kAborted or kFailedPrecondition. Not
  // called for tools, which choose their own incarnations.
  virtual Status CheckOrigin(const Origin& /*caller*/, Time /*now*/) { return Status::Ok(); }
  // Called when the connection state of a client changes, which shows a dead or hung peer early.
  virtual void PeerChanged(const Origin& /*peer*/, PeerState /*state*/) {}
};

// Keeps an endpoint bound for its lifetime.
class Listener {
 public:
  virtual ~Listener() = default;
  // The bound endpoint: with the actual port if port 0 was requested, and with "#<public key>" if
  // keys are used.
  virtual const std::string& endpoint() const = 0;
};

// Options of all channels and listeners of a network.
struct NetworkOptions {
  Duration dead_after = Milliseconds(1500);  // silence after which a peer is kHung or kDown
  // Interval of heartbeats; two may be late before a peer counts as dead.
  Duration heartbeat_every = std::min<Duration>(Milliseconds(500), dead_after / 3);
  std::size_t message_bytes_max = kMessageBytesMax;  // limit of one message, all parts together
  int parts_max = 4096;                              // maximum number of parts of one message
  // Memory limit of a server for the unconfirmed answers of all clients. Beyond it, the oldest
  // answers of the client with the most memory are dropped. A repeat of such a call gets
  // kDeadlineExceeded: the call was applied, but its answer is lost.
  std::size_t reply_memory_bytes = std::size_t{256} << 20;
  // Maximum number of channels per listener. Beyond it, the client that has been disconnected
  // longest is dropped; if all are connected, a new client waits.
  int clients_max = 4096;
  // Time after which the state of a disconnected client is dropped, and after which a TCP
  // connection without a valid message is closed.
  Duration forget_after = Seconds(60);
  // With keys, every tcp:// socket is encrypted and a server admits only allowed keys
  // (net/security/keys.h). Without keys, Listen rejects addresses that other machines can reach,
  // unless `insecure`. ipc:// is protected by the rights of its folder, and inproc:// is private to
  // the process: they need no keys.
  std::shared_ptr<const KeyRing> keys;
  bool insecure = false;
};

// All sockets of one thread. Two implementations: ZeroMQ (ipc://, tcp://, inproc://, by endpoint)
// and the simulator (in memory; also used by serial mode). Owner: the node's thread; only Wake is
// thread safe.
class Network {
 public:
  virtual ~Network() = default;
  // Opens a channel. Never blocks; the peer may start later. Errors: kInvalidArgument: an invalid
  // endpoint.
  virtual Result<std::unique_ptr<Channel>> Connect(std::string_view endpoint,
                                                   const ChannelOptions& options) = 0;
  // Binds an endpoint. REQUIRES: `service` outlives the listener. Errors: kAlreadyExists: port or
  // socket in use, with its holder if known; kInvalidArgument.
  virtual Result<std::unique_ptr<Listener>> Listen(std::string_view endpoint, Service* service) = 0;
  // Redirects all channels of the endpoint `from` to `to`, after a service has moved (for example,
  // because its server restarted). Errors: kInvalidArgument: an invalid endpoint. No effect in the
  // simulator, where services never move.
  virtual Status Redirect(std::string_view from, std::string_view to);
  // Processes all pending messages: calls services, completes tickets, sends heartbeats, expires
  // deadlines. The work per call is bounded. Returns true if anything happened.
  virtual bool Pump(Time now) = 0;
  // Blocks until Pump has work, Wake is called, or `until` is reached. Called only by the loop that
  // runs the thread's nodes. The simulator returns at once.
  virtual void Wait(Time now, Time until) = 0;
  // Makes the current or next Wait return. Thread safe.
  virtual void Wake() = 0;
  // Makes Wait also return when this descriptor is readable; -1: none. One descriptor at a time.
  // The simulator ignores it.
  virtual void Watch(int) {}
};

inline Status Network::Redirect(std::string_view, std::string_view) { return Status::Ok(); }

// Creates the network of ZeroMQ sockets. Errors: kResourceExhausted: ZeroMQ cannot start, or there
// are no file descriptors.
Result<std::unique_ptr<Network>> MakeZmqNetwork(const NetworkOptions& options = {});

}  // namespace troop
