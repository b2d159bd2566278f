// Implements the client side of a connection: keys, rejections, messages and tickets.
#include "net/transport/zmq_channel.h"

#include <utility>

#include "core/base/log.h"
#include "net/transport/zmq_route.h"

namespace troop {
namespace {

// Consecutive failed handshakes that count as a rejection; half a second with the pauses of ZeroMQ.
constexpr int kRefusalsMax = 3;
// Failures further apart are not counted: with a stopped server every handshake times out (after 5
// s, ZMQ_HANDSHAKE_IVL), which is not a rejection.
constexpr Duration kRefusalsApart = Seconds(2);
}  // namespace

ZmqChannel::ZmqChannel(Owner owner, const Endpoint& endpoint, std::string name,
                       const ChannelOptions& channel)
    : CallChannel(std::move(name), channel, owner.options, RandomId(),
                  endpoint.transport == Endpoint::kTcp && !IsLoopback(endpoint)),
      owner_(std::move(owner)),
      at_(endpoint),
      limits_{owner_.options.message_bytes_max, owner_.options.parts_max},
      reads_(endpoint.transport == Endpoint::kIpc) {
  TrustServer();
  owner_.list->Add(this);
}

ZmqChannel::~ZmqChannel() {
  SayGoodbye();
  owner_.list->Remove(this);
}

// With keys: the key of the endpoint if it has one, else all known coordinator keys.
void ZmqChannel::TrustServer() {
  servers_.clear();
  server_ = 0;
  if (at_.transport != Endpoint::kTcp || owner_.options.keys == nullptr) return;
  servers_ = at_.key ? std::vector{*at_.key} : owner_.options.keys->coordinators;
}

void ZmqChannel::MoveTo(const Endpoint& endpoint, std::string name, Time now) {
  socket_.Close();
  at_ = endpoint;
  Rename(std::move(name));
  TrustServer();
  refusals_ = 0;
  Disconnected(now);
  if (const Status opened = Open(now); !opened.ok()) Fail(opened);
}

Status ZmqChannel::Open(Time now) {
  const PublicKey* const server = servers_.empty() ? nullptr : &servers_[server_];
  TROOP_RETURN_IF_ERROR(
      socket_.Open(owner_.context, ZmqSocket::kClient, at_, owner_.options, server));
  if (const int error = socket_.Connect(endpoint(), RouteOf(id())); error != 0) {
    return InvalidArgument("can't connect to {}: {}", endpoint(), ZmqSocket::ErrorText(error));
  }
  if (at_.transport == Endpoint::kInproc)
    Connected(now);  // inproc sockets report no connection events
  return Status::Ok();
}

// Order: changes of the connection, messages, timers.
bool ZmqChannel::Pump(Time now) {
  bool busy = false;
  if (socket_.TakeEventsPending()) {
    for (SocketEvent e = socket_.NextEvent(); e.kind != SocketEvent::kNone;
         e = socket_.NextEvent()) {
      busy = true;
      if (e.kind == SocketEvent::kReady) {
        refusals_ = 0;
        Connected(now);
      }
      if (e.kind == SocketEvent::kEnded) Disconnected(now);
      if (e.kind == SocketEvent::kRefused) Refused(e.refusal, now);
      // Refused may have closed the socket, and its events with it.
      if (!socket_.is_open()) break;
    }
  }
  if (socket_.TakeReadable()) busy |= Read(now);
  if (at_.transport == Endpoint::kInproc && silent() && socket_.is_open() && !socket_.CanSend()) {
    // ZeroMQ neither reconnects inproc sockets after the listener closed nor reports it.
    if (const Status opened = Open(now); !opened.ok()) Fail(opened);
    Disconnected(now);
  }
  full_ = false;
  return Tick(now) || busy;
}

// ZeroMQ would retry forever, several times per second. A server that dies during a handshake also
// ends it, so only several failures in a row count as a rejection.
void ZmqChannel::Refused(SocketEvent::Refusal refusal, Time now) {
  const KeyRing* const ring = owner_.options.keys.get();
  Disconnected(now);
  if (now - last_refusal_ > kRefusalsApart) refusals_ = 0;
  last_refusal_ = now;
  ++refusals_;
  const bool counts = at_.transport == Endpoint::kTcp && refusals_ >= kRefusalsMax;
  if (refusal == SocketEvent::kEnd && !counts) return;
  // Errors that another server key may fix: the next known coordinator key is tried.
  const bool our_idea = refusal == SocketEvent::kEnd || refusal == SocketEvent::kCipher;
  socket_.Close();
  if (our_idea && server_ + 1 < servers_.size()) {
    ++server_;
    refusals_ = 0;
    if (const Status opened = Open(now); !opened.ok()) Fail(opened);
    return;
  }
  if (refusal == SocketEvent::kNotAllowed) {
    Fail(FailedPrecondition("{}: the server does not allow our public key {} of {}", endpoint(),
                            KeyText(ring->public_key).substr(0, 16) + "…", ring->file));
  } else if (refusal == SocketEvent::kMechanism && ring == nullptr) {
    Fail(FailedPrecondition("{} requires a key; give one (--key FILE, or security.keys)",
                            endpoint()));
  } else if (refusal == SocketEvent::kMechanism) {
    Fail(FailedPrecondition(
        "{} has no keys (set security.keys there), but a key is configured here ({})", endpoint(),
        ring->file));
  } else if (!servers_.empty()) {
    Fail(
        FailedPrecondition("{} rejects our handshake: the server has another key than {} states, "
                           "or is not a Troop server",
                           endpoint(), ring->file));
  } else {
    Fail(
        FailedPrecondition("{} rejects every handshake: the server requires a key (--key FILE, or "
                           "security.keys), or is not a Troop server",
                           endpoint()));
  }
}

// Errors by code: kFailedPrecondition ends the channel, kUnavailable turns shared memory off, and
// others drop the message.
bool ZmqChannel::Read(Time now) {
  std::size_t bytes = 0;
  for (int n = 0; n < kMessagesPerPump && bytes < kBytesPerPump; ++n) {
    ZmqMessage incoming;
    if (!socket_.Receive(limits_, incoming)) return n > 0;
    bytes += incoming.bytes;
    if (incoming.status.ok()) {
      if (incoming.envelope.flags & kFlagWelcome) {
        server_reads_ = (incoming.envelope.flags & kFlagShares) != 0;
      }
      Receive(incoming.envelope, std::move(incoming.message), now);
    } else if (incoming.status.code() == Code::kFailedPrecondition) {
      Fail(incoming.status.WithContext(endpoint()));
    } else if (incoming.status.code() == Code::kUnavailable) {
      LogInfo("{}: {}; continuing without shared memory", endpoint(), incoming.status.message());
      reads_ = false;  // announced by the next Hello; the answer is repeated
      socket_.Close();
      Disconnected(now);
      if (const Status opened = Open(now); !opened.ok()) Fail(opened);
      return true;
    } else {
      LogWarning("{}: dropped: {}", endpoint(), incoming.status.message());
    }
  }
  // The limit was reached. ZeroMQ's descriptor is edge-triggered and does not report the rest.
  socket_.ReadAgain();
  return true;
}

bool ZmqChannel::Transmit(const Envelope& envelope, const Message& message) {
  if (full_ || !socket_.is_open()) return false;  // tried once per Pump
  Envelope told = envelope;
  if (reads_ && (told.flags & kFlagHello) != 0) told.flags |= kFlagShares;
  full_ = socket_.Send({}, told, message, server_reads_) != SendResult::kSent;
  return !full_;
}

}  // namespace troop
