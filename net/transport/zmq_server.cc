// Implements the server side of connections: binding, checks of senders, and the log of rejections.
#include "net/transport/zmq_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/base/log.h"
#include "net/error.h"
#include "net/security/access_control.h"
#include "net/transport/zmq_route.h"

namespace troop {
namespace {

// Byte limit of a TCP peer before its first valid message. Greeting, handshake and Hello take about
// 300 bytes; ZeroMQ allocates up to 32 bytes of memory per byte of tiny frames.
constexpr std::uint64_t kStrangerBytesMax = 64 << 10;
constexpr std::uint64_t kMessageSlack = 1 << 20;  // frames and headers, in addition to the payload
// Intervals of TcpGuard checks, with and without unknown peers.
constexpr Duration kGuardStrangers = Milliseconds(20);
constexpr Duration kGuardKnown = Milliseconds(250);

std::string PeerNameOf(const Origin& origin) {
  return fmt::format("{} {}", RoleName(origin.role), origin.index);
}

}  // namespace

ZmqServer::ZmqServer(Service* service, const NetworkOptions& network, const Endpoint& endpoint)
    : CallServer(service, network, RandomId()),
      transport_(endpoint.transport),
      keys_(endpoint.transport == Endpoint::kTcp ? network.keys : nullptr),
      limits_{network.message_bytes_max, network.parts_max},
      guard_({.unauthenticated_bytes = kStrangerBytesMax,
              .message_bytes = network.message_bytes_max + kMessageSlack,
              .patience = network.forget_after}) {}

Status ZmqServer::Open(const std::shared_ptr<ZmqContext>& context, const Endpoint& endpoint,
                       const NetworkOptions& network) {
  TROOP_RETURN_IF_ERROR(socket_.Open(context, ZmqSocket::kServer, endpoint, network));
  static constexpr std::array<std::string_view, 3> kSchemes{"ipc://", "tcp://", "inproc://"};
  const std::string name = std::string(kSchemes[transport_]) + endpoint.address;
  int error = 0;
  if (transport_ == Endpoint::kIpc) {
    // Bound here under a lock file, because ZeroMQ would replace the socket of a running server.
    TROOP_ASSIGN_OR_RETURN(ipc_, IpcSocket::Bind(endpoint.address));
    error = socket_.BindTo(ipc_.ReleaseFd(), name);
  } else if (transport_ == Endpoint::kTcp) {
    TROOP_RETURN_IF_ERROR(socket_.BindTcp(endpoint));
  } else {
    error = socket_.Bind(name);
  }
  if (error == EADDRINUSE && transport_ == Endpoint::kInproc) {
    return AlreadyExists("{} is in use by this process; choose another name", name);
  }
  if (error != 0) {
    return InvalidArgument("can't listen on {}: {}", name, ZmqSocket::ErrorText(error));
  }
  endpoint_ = transport_ == Endpoint::kTcp ? socket_.bound_name() : name;
  told_ = keys_ == nullptr ? endpoint_ : endpoint_ + "#" + KeyText(keys_->public_key);
  return Status::Ok();
}

void ZmqServer::Leave() {
  Close();
  if (!socket_.is_open()) return;
  socket_.Unbind(endpoint_);
  socket_.Close();
  ipc_ = IpcSocket();
}

bool ZmqServer::Pump(Time now) {
  bool busy = false;
  bool ended = false;
  if (socket_.TakeEventsPending()) {
    for (SocketEvent e = socket_.NextEvent(); e.kind != SocketEvent::kNone;
         e = socket_.NextEvent()) {
      busy = true;
      // Each event may mean that a descriptor was reused, so entries of ways_ become invalid.
      ++changes_;
      if (transport_ == Endpoint::kTcp && e.kind == SocketEvent::kAccepted) {
        guard_.Accepted(e.connection, now);
      } else if (e.kind == SocketEvent::kEnded) {
        if (transport_ == Endpoint::kTcp) NoteStranger(guard_.Closed(e.connection), now);
        ended = true;
      } else if (e.kind == SocketEvent::kRefused) {
        refusal_ = e.refusal;
      }
    }
  }
  if (socket_.TakeReadable()) busy |= Read(now);
  if (closed()) return true;
  if (ended) Probe(now);
  if (transport_ == Endpoint::kTcp) Guard(now);
  if (sharing_.size() > 2 * clients() + 64) {  // drop disconnected clients
    std::erase_if(sharing_, [&](const auto& one) { return !Serves(one.first); });
  }
  return Tick(now) || busy;
}

bool ZmqServer::Read(Time now) {
  std::size_t bytes = 0;
  for (int n = 0; n < kMessagesPerPump && bytes < kBytesPerPump; ++n) {
    ZmqMessage incoming;
    if (!socket_.Receive(limits_, incoming)) return n > 0;
    bytes += incoming.bytes;
    const Status status = incoming.status.ok() ? Accept(incoming, now) : incoming.status;
    // The next Welcome announces it, and the call is repeated.
    if (status.code() == Code::kUnavailable) sharing_[incoming.envelope.channel].unread = true;
    if (closed()) return true;
    if (!status.ok()) Reject(status, now);
  }
  socket_.ReadAgain();
  return true;
}

// Checks the sender of a message, its connection and its key, then handles it.
Status ZmqServer::Accept(ZmqMessage& incoming, Time now) {
  const std::uint64_t channel = incoming.envelope.channel;
  const Route route = RouteOf(channel);
  const std::span<const std::byte> sender = socket_.sender();
  if (!std::ranges::equal(sender, std::span<const std::byte>(route))) {
    // Ids generated by ZeroMQ start with 0. Such a peer has set none, or it is an old connection of
    // a client that reconnected and repeats its messages on the new one.
    if (!sender.empty() && sender[0] == std::byte{0}) return Status::Ok();
    return DataLoss("a message names a channel of another sender");
  }
  if (transport_ == Endpoint::kIpc && (incoming.envelope.flags & kFlagHello) != 0) {
    sharing_[channel].reads = (incoming.envelope.flags & kFlagShares) != 0;
  }
  if (transport_ == Endpoint::kTcp) {
    Way& way = ways_[channel];
    if (way.change != changes_) way = {changes_, socket_.connection()};
    guard_.Delivered(way.connection);
  }
  if (keys_ != nullptr) {
    incoming.message.key = socket_.key();
    const Status may = CheckAccess(incoming.message.key, incoming.message);
    if (!may.ok()) {
      Forbid(incoming, may, now);
      return Status::Ok();
    }
  }
  return Receive(incoming.envelope, std::move(incoming.message), now);
}

// Rejects a message that the key of its sender does not permit, and notifies the sender, which
// stops.
void ZmqServer::Forbid(const ZmqMessage& incoming, const Status& why, Time now) {
  const std::uint64_t channel = incoming.envelope.channel;
  if (forbidden_.Next(now)) {
    const std::string name = guard_.NameOf(socket_.connection());
    LogWarning("{}: rejected message {} without permission, from {} at {}: {}", endpoint_,
               forbidden_.number, PeerNameOf(incoming.message.origin), name, why.message());
  }
  socket_.Send(RouteOf(channel), {.flags = kFlagReply, .channel = channel}, MakeErrorMessage(why));
}

// Cuts off the sender of an invalid message. A peer with another wire version gets a heartbeat in
// ours instead.
void ZmqServer::Reject(const Status& why, Time now) {
  const int connection = socket_.connection();
  if (rejected_.Next(now)) {
    const std::string name = guard_.NameOf(connection);
    LogWarning("{}: rejected message {} from {}: {}", endpoint_, rejected_.number,
               name.empty() ? "a local peer" : name, why.message());
  }
  if (why.code() == Code::kFailedPrecondition) {
    socket_.Send(socket_.sender(), {.flags = kFlagHeartbeat}, {.type = MessageType::kHeartbeat});
  } else if (connection >= 0) {
    // ZeroMQ can't close a single peer; it detects the shutdown and removes the connection.
    shutdown(connection, SHUT_RDWR);
    guard_.NoteCut(connection);
  }
}

// Logs a connection that ZeroMQ closed before its first message: without a handshake in time, or
// with frames beyond the limit. A client that detects from our greeting that exactly one side has a
// key often disconnects before an event reports it.
void ZmqServer::NoteStranger(const std::optional<std::string>& name, Time now) {
  const auto refusal = std::exchange(refusal_, std::nullopt);
  if (!name || refusal == SocketEvent::kNotAllowed) return;  // logged by ZapHandler
  const char* keys = keys_ != nullptr
                         ? "the client has no key"
                         : "the client has a key, but none are set here (security.keys)";
  const char* why = "closed before its first message, possibly because ";
  if (refusal == SocketEvent::kMechanism) why = "rejected: ";
  if (refusal == SocketEvent::kCipher) {
    why = "rejected: ";
    keys = "the client expects another server key";
  }
  if (!strangers_.Next(now)) return;
  LogWarning("{}: connection from {} {}{} ({} in total)", endpoint_,
             name->empty() ? "a disconnected client" : *name, why, keys, strangers_.number);
}

void ZmqServer::Guard(Time now) {
  if (now < next_guard_) return;
  for (const TcpGuard::Cut& cut : guard_.Check(now)) {
    LogWarning("{}: closed the connection of {}: {}", endpoint_, cut.name, cut.why);
  }
  next_guard_ = now + (guard_.has_unauthenticated_peers() ? kGuardStrangers : kGuardKnown);
  if (ways_.size() > 2 * clients() + 64) ways_.clear();  // drop disconnected clients
}

Time ZmqServer::next_pump() const {
  return transport_ == Endpoint::kTcp && guard_.has_unauthenticated_peers()
             ? std::min(next_tick(), next_guard_)
             : next_tick();
}

SendResult ZmqServer::Transmit(std::uint64_t channel, const Envelope& envelope,
                               const Message& message) {
  Envelope told = envelope;
  bool share = false;
  if (transport_ == Endpoint::kIpc) {
    const auto found = sharing_.find(channel);
    const Sharing sharing = found == sharing_.end() ? Sharing{} : found->second;
    const bool may = sharing.reads && !sharing.unread;  // only for clients with ticket support
    if ((told.flags & kFlagWelcome) != 0 && may) told.flags |= kFlagShares;
    share = sharing.reads;
  }
  return socket_.Send(RouteOf(channel), told, message, share);
}

}  // namespace troop
