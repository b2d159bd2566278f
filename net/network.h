#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"
#include "core/time.h"
#include "net/message.h"

namespace troop {

class KeyRing;  // net/keys.h

using Ticket = std::uint64_t;  // of one call on one channel; 0: none

enum class PeerState {
  kConnecting,  // nothing heard yet
  kUp,
  kHung,  // its sockets answer, its node does not (no progress heartbeat)
  kDown,  // nothing heard for NetworkOptions::dead_after, or disconnected
};

struct ChannelOptions {
  Origin origin;    // role, index, incarnation, epoch of this side
  int window = 16;  // calls open, or answered and not yet polled; more are refused
  // Of bodies and parts in flight; a larger call may go alone.
  std::size_t window_bytes = std::size_t{64} << 20;
};

// The calling end of a connection to one service. Owner: the node's thread. Nothing blocks.
// A call stays open until it is answered, its deadline passes, or Forget: a lost connection does
// not end it; the channel reconnects and sends unanswered calls again with the same sequence (the
// server answers a repeated call from memory), so a call is applied at most once per life of the
// server. A call may be open for long, but the 4,096th call after it waits for it: calls parked for
// minutes beside a stream of others want a channel of their own. Send may be called between Pumps;
// the message leaves at once. A Channel may outlive its Network, then it is dead.
class Channel {
 public:
  virtual ~Channel() = default;
  // Moves from `message` only on success. Errors: kResourceExhausted: the window is full (try
  // later: never a silent drop); kInvalidArgument: larger than the wire's limit.
  virtual Result<Ticket> Send(Message& message, Time deadline) = 0;
  // The answer, once; then the ticket is gone. nullopt: not yet. Errors: kDeadlineExceeded;
  // kAborted: the server fenced this incarnation; or what the service answered (kError).
  virtual std::optional<Result<Message>> Poll(Ticket ticket) = 0;
  // Drops a call; its answer will be discarded.
  virtual void Forget(Ticket ticket) = 0;
  virtual bool CanSend() const = 0;  // the window has room for one small call
  virtual int in_flight() const = 0;
  virtual PeerState peer() const = 0;
};

// Answers one call, at most once, at any later time (to park a call = to keep its Reply). Movable.
// Destroyed unanswered: the caller gets kInternal. Usable after the peer went away (then void).
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

// What a server does. Both calls come on the node's thread, from Network::Pump.
class Service {
 public:
  virtual ~Service() = default;
  // Never called twice for one call (repeats are answered by net/), never for a fenced incarnation.
  virtual void Handle(Message message, Reply reply) = 0;
  // Before a client is admitted whose incarnation is newer than any seen of its (role, index), and
  // would fence those. Not ok: it is turned away and fences nothing. kUnavailable: it soon asks
  // again; kAborted, kFailedPrecondition: it ends. Tools number themselves and are not asked for.
  virtual Status CheckOrigin(const Origin& /*caller*/, Time /*now*/) { return Status::Ok(); }
  // A client's connection state changed; for named, early notice of a dead or hung peer.
  virtual void PeerChanged(const Origin& /*peer*/, PeerState /*state*/) {}
};

// Keeps an endpoint bound while it lives.
class Listener {
 public:
  virtual ~Listener() = default;
  // With the real port when port 0 was asked, and with keys "#<our public key>".
  virtual const std::string& endpoint() const = 0;
};

struct NetworkOptions {
  Duration dead_after = Milliseconds(1500);  // nothing heard: kDown
  // Two beats may be late before a peer counts as dead.
  Duration heartbeat_every = std::min<Duration>(Milliseconds(500), dead_after / 3);
  std::size_t message_bytes_max = kMessageBytesMax;
  int parts_max = 4096;
  // What a server keeps of answers that clients have not confirmed, over all of them. Beyond it the
  // oldest are dropped; a repeat of such a call gets kDeadlineExceeded: it happened, but its answer
  // is lost.
  std::size_t reply_memory_bytes = std::size_t{256} << 20;
  int clients_max = 4096;  // channels one listener serves; more are turned away
  // A client that is down so long loses its place; a TCP connection whose first message takes
  // longer is cut off.
  Duration forget_after = Seconds(60);
  // With keys every tcp:// socket is encrypted, and a server admits those alone whom its list of
  // allowed keys names (net/keys.h). Without, Listen refuses addresses that other machines reach,
  // unless `insecure`. ipc:// is for our own user by the rights of its folder, inproc:// for our
  // own process: they need none.
  std::shared_ptr<const KeyRing> keys;
  bool insecure = false;
};

// All sockets of one thread. Two implementations: ZeroMQ (ipc://, tcp://, inproc://, by endpoint)
// and simulated (in memory; serial mode). Owner: the node's thread; only Wake is thread safe.
class Network {
 public:
  virtual ~Network() = default;
  // Never blocks; the peer need not be there yet. Errors: kInvalidArgument: a bad endpoint.
  virtual Result<std::unique_ptr<Channel>> Connect(std::string_view endpoint,
                                                   const ChannelOptions& options) = 0;
  // `service` outlives the listener. Errors: kAlreadyExists: port or socket in use, with its
  // holder where known; kInvalidArgument.
  virtual Result<std::unique_ptr<Listener>> Listen(std::string_view endpoint, Service* service) = 0;
  // A service has moved: channels that lead to `from` go on at `to`, as after a restart of their
  // server. Errors: kInvalidArgument: a bad endpoint. The simulated network's services never move.
  virtual Status Redirect(std::string_view from, std::string_view to);
  // Moves all pending bytes: calls services, fills tickets, sends heartbeats, expires deadlines.
  // Bounded work; true: something happened.
  virtual bool Pump(Time now) = 0;
  // Blocks until something can be pumped, Wake, or `until`. Hosts of nodes only. A simulated
  // network returns at once.
  virtual void Wait(Time now, Time until) = 0;
  virtual void Wake() = 0;  // thread safe
  // Wait ends also when this descriptor is readable; -1: none. One at a time. A simulated network
  // has no use for it.
  virtual void Watch(int) {}
};

inline Status Network::Redirect(std::string_view, std::string_view) { return Status::Ok(); }

Result<std::unique_ptr<Network>> MakeZmqNetwork(const NetworkOptions& options = {});

}  // namespace troop
