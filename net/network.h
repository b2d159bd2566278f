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
  kHung,  // its sockets answer, but its node does not (no heartbeat)
  kDown,  // silent for NetworkOptions::dead_after, or disconnected
};

struct ChannelOptions {
  Origin origin;    // role, index, incarnation, epoch of this side
  int window = 16;  // maximum number of open or unpolled calls; more are rejected
  // Limit of the bytes in flight; a larger call may be sent alone.
  std::size_t window_bytes = std::size_t{64} << 20;
};

// The client side of a connection to one service. Owner: the node's thread. Nothing blocks.
//
// A call stays open until it is answered, its deadline passes, or Forget. A lost connection does
// not end it: the channel reconnects and sends unanswered calls again with the same sequence, and
// the server answers repeats from memory, so a call is applied at most once per life of the server.
// Calls can stay open for long, but the 4,096th call after the oldest open one waits for it. So
// calls that are parked for minutes next to a stream of others need a separate channel. Send may be
// called between Pumps; the message is sent at once. A Channel may outlive its Network, and then
// stays silent.
class Channel {
 public:
  virtual ~Channel() = default;
  // Starts a call; moves from `message` only on success. Errors: kResourceExhausted: the window is
  // full (retry later; nothing is dropped silently); kInvalidArgument: larger than the wire limit.
  virtual Result<Ticket> Send(Message& message, Time deadline) = 0;
  // Returns the answer once, which invalidates the ticket; nullopt if there is none yet. Errors:
  // kDeadlineExceeded; kAborted: the server fenced this incarnation; or the error of the service
  // (kError).
  virtual std::optional<Result<Message>> Poll(Ticket ticket) = 0;
  // Drops a call; its answer is discarded.
  virtual void Forget(Ticket ticket) = 0;
  virtual bool CanSend() const = 0;  // true if the window has room for one small call
  virtual int in_flight() const = 0;
  virtual PeerState peer() const = 0;
};

// Answers one call at most once, at any later time (a call is parked by keeping its Reply).
// Movable. If destroyed without an answer, the caller gets kInternal. Remains usable after the peer
// disconnected, without effect.
class Reply {
 public:
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
  void Send(Message message);
  void Fail(const Status& status);
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
  // Called before a client is admitted whose incarnation is newer than all known ones of its (role,
  // index), which it would fence. If not ok, the client is rejected and fences nothing: after
  // kUnavailable it retries soon; after kAborted or kFailedPrecondition it stops. Not called for
  // tools, which choose their own incarnations.
  virtual Status CheckOrigin(const Origin& /*caller*/, Time /*now*/) { return Status::Ok(); }
  // Reports a change of the connection state of a client: early notice of a dead or hung peer.
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

struct NetworkOptions {
  Duration dead_after = Milliseconds(1500);  // silence after which a peer is kDown
  // Interval of heartbeats; two may be late before a peer counts as dead.
  Duration heartbeat_every = std::min<Duration>(Milliseconds(500), dead_after / 3);
  std::size_t message_bytes_max = kMessageBytesMax;
  int parts_max = 4096;
  // Memory limit of a server for answers that clients have not confirmed, over all clients. Beyond
  // it the oldest are dropped; a repeat of such a call gets kDeadlineExceeded: the call was
  // applied, but its answer is lost.
  std::size_t reply_memory_bytes = std::size_t{256} << 20;
  int clients_max = 4096;  // maximum number of channels per listener
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
  // Redirects channels from the endpoint `from` to `to` after a service has moved, as after a
  // restart of their server. Errors: kInvalidArgument: an invalid endpoint. Services of the
  // simulator never move.
  virtual Status Redirect(std::string_view from, std::string_view to);
  // Processes all pending messages: calls services, completes tickets, sends heartbeats, expires
  // deadlines. The work per call is bounded. Returns true if anything happened.
  virtual bool Pump(Time now) = 0;
  // Blocks until there is work for Pump, Wake is called, or `until` is reached. Only for hosts of
  // nodes. The simulator returns at once.
  virtual void Wait(Time now, Time until) = 0;
  virtual void Wake() = 0;  // thread safe
  // Makes Wait also return when this descriptor is readable; -1: none. One descriptor at a time.
  // The simulator ignores it.
  virtual void Watch(int) {}
};

inline Status Network::Redirect(std::string_view, std::string_view) { return Status::Ok(); }

Result<std::unique_ptr<Network>> MakeZmqNetwork(const NetworkOptions& options = {});

}  // namespace troop
