// tidy: long file, because channels, servers and their network are one state machine over a socket.
// Implements Network over ZeroMQ: ZmqSocket transports, CallChannel and CallServer interpret.
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/log_rate_limit.h"
#include "net/error.h"
#include "net/network.h"
#include "net/rpc/call_channel.h"
#include "net/rpc/call_server.h"
#include "net/rpc/stable_list.h"
#include "net/security/access_control.h"
#include "net/security/tcp_guard.h"
#include "net/transport/endpoint.h"
#include "net/transport/zmq_socket.h"
#include "net/wire/frame.h"

namespace troop {
namespace {

// Limits of the work per socket and Pump.
constexpr int kMessagesPerPump = 256;
constexpr std::size_t kBytesPerPump = std::size_t{32} << 20;
// Byte limit of a TCP peer before its first valid message. Greeting, handshake and Hello take about
// 300 bytes; ZeroMQ allocates up to 32 bytes of memory per byte of tiny frames.
constexpr std::uint64_t kStrangerBytesMax = 64 << 10;
constexpr std::uint64_t kMessageSlack = 1 << 20;  // frames and headers, in addition to the payload
// Consecutive failed handshakes that count as a rejection; half a second with the pauses of ZeroMQ.
constexpr int kRefusalsMax = 3;
// Failures further apart are not counted: with a stopped server every handshake times out (after 5
// s, ZMQ_HANDSHAKE_IVL), which is not a rejection.
constexpr Duration kRefusalsApart = Seconds(2);
// Intervals of TcpGuard checks, with and without unknown peers.
constexpr Duration kGuardStrangers = Milliseconds(20);
constexpr Duration kGuardKnown = Milliseconds(250);

std::uint64_t RandomId() {
  std::uint64_t id = 0;
  while (id == 0) {
    TROOP_CHECK(getrandom(&id, sizeof id, 0) == sizeof id, "can't get random numbers: {}",
                std::strerror(errno));
  }
  return id;
}

// A routing id is 'T' and the channel id, so a client has the same one on every connection.
using Route = std::array<std::byte, 9>;
Route RouteOf(std::uint64_t channel) {
  Route route;
  route[0] = std::byte{'T'};
  std::memcpy(route.data() + 1, &channel, sizeof channel);
  return route;
}

std::string PeerNameOf(const Origin& origin) {
  return fmt::format("{} {}", RoleName(origin.role), origin.index);
}

// Display name of an endpoint, without the key after #.
std::string NameOf(std::string_view endpoint) {
  return std::string(endpoint.starts_with("tcp://") ? endpoint.substr(0, endpoint.find('#'))
                                                    : endpoint);
}

class ZmqChannel;
class ZmqServer;
struct Members {
  StableList<ZmqChannel> channels;
  StableList<ZmqServer> servers;
};

// Client side of a connection: transports the messages of a CallChannel over a DEALER socket.
class ZmqChannel final : public CallChannel {
 public:
  ZmqChannel(std::shared_ptr<ZmqContext> context, std::shared_ptr<Members> members,
             const Endpoint& endpoint, std::string name, const ChannelOptions& channel,
             const NetworkOptions& network)
      : CallChannel(std::move(name), channel, network, RandomId(),
                    endpoint.transport == Endpoint::kTcp && !IsLoopback(endpoint)),
        context_(std::move(context)),
        members_(std::move(members)),
        at_(endpoint),
        network_(network),
        limits_{network.message_bytes_max, network.parts_max},
        reads_(endpoint.transport == Endpoint::kIpc) {
    TrustServer();
    members_->channels.Add(this);
  }
  ~ZmqChannel() override {
    SayGoodbye();
    members_->channels.Remove(this);
  }

  Status Open(Time now);
  bool Pump(Time now);
  // Reconnects to a new endpoint of the same service.
  void MoveTo(const Endpoint& endpoint, std::string name, Time now);
  ZmqSocket& socket() { return socket_; }

 protected:
  bool Transmit(const Envelope& envelope, const Message& message) override;

 private:
  bool Read(Time now);
  void Refused(SocketEvent::Refusal refusal, Time now);
  void TrustServer();

  std::shared_ptr<ZmqContext> context_;
  std::shared_ptr<Members> members_;
  Endpoint at_;
  const NetworkOptions network_;
  const WireLimits limits_;
  ZmqSocket socket_;
  bool full_ = false;
  bool reads_;                 // true if this side accepts tickets for big parts (ipc only)
  bool server_reads_ = false;  // true if the server accepts them
  // With keys: the possible keys of the server, and the index of the one in use.
  std::vector<PublicKey> servers_;
  std::size_t server_ = 0;
  int refusals_ = 0;  // consecutive rejections of this key
  Time last_refusal_{};
};

// With keys: the key of the endpoint if it has one, else all known coordinator keys.
void ZmqChannel::TrustServer() {
  servers_.clear();
  server_ = 0;
  if (at_.transport != Endpoint::kTcp || network_.keys == nullptr) return;
  servers_ = at_.key ? std::vector{*at_.key} : network_.keys->coordinators;
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
  TROOP_RETURN_IF_ERROR(socket_.Open(context_, ZmqSocket::kClient, at_, network_, server));
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
  const KeyRing* const ring = network_.keys.get();
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

// Server side: transports the messages of a CallServer over a ROUTER socket.
class ZmqServer final : public CallServer {
 public:
  ZmqServer(Service* service, const NetworkOptions& network, const Endpoint& endpoint)
      : CallServer(service, network, RandomId()),
        transport_(endpoint.transport),
        keys_(endpoint.transport == Endpoint::kTcp ? network.keys : nullptr),
        limits_{network.message_bytes_max, network.parts_max},
        guard_({.unauthenticated_bytes = kStrangerBytesMax,
                .message_bytes = network.message_bytes_max + kMessageSlack,
                .patience = network.forget_after}) {}

  Status Open(const std::shared_ptr<ZmqContext>& context, const Endpoint& endpoint,
              const NetworkOptions& network);
  // Closes the socket, so the endpoint is free when it returns; pending Replies may keep the object
  // alive longer.
  void Leave();
  bool Pump(Time now);
  Time next_pump() const;
  ZmqSocket& socket() { return socket_; }
  const std::string& endpoint() const { return told_; }

 protected:
  SendResult Transmit(std::uint64_t channel, const Envelope& envelope,
                      const Message& message) override;

 private:
  bool Read(Time now);
  Status Accept(ZmqMessage& incoming, Time now);
  void Reject(const Status& why, Time now);
  void Forbid(const ZmqMessage& incoming, const Status& why, Time now);
  void NoteStranger(const std::optional<std::string>& name, Time now);
  void Guard(Time now);

  const Endpoint::Transport transport_;
  const std::shared_ptr<const KeyRing> keys_;  // null without keys, or if not tcp
  const WireLimits limits_;
  std::string endpoint_;  // name for ZeroMQ
  std::string told_;      // name for clients, with the key
  IpcSocket ipc_;         // must outlive the socket
  ZmqSocket socket_;
  TcpGuard guard_;
  Time next_guard_{};
  // TCP only: the connection of the last message of a channel; looked up again after each change of
  // connections.
  struct Way {
    std::uint64_t change = 0;
    int connection = -1;
  };
  std::unordered_map<std::uint64_t, Way> ways_;
  std::uint64_t changes_ = 1;
  // ipc only: true if a channel accepts tickets, and true if its own tickets could not be read
  // here.
  struct Sharing {
    bool reads = false, unread = false;
  };
  std::unordered_map<std::uint64_t, Sharing> sharing_;
  LogRateLimit rejected_, strangers_, forbidden_;
  // Reason of the last failed handshake; the event of its closed connection follows.
  std::optional<SocketEvent::Refusal> refusal_;
};

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

// Owns a server; its destruction frees the endpoint.
class ZmqListener final : public Listener {
 public:
  ZmqListener(std::shared_ptr<ZmqServer> server, std::shared_ptr<Members> members)
      : server_(std::move(server)), members_(std::move(members)) {
    members_->servers.Add(server_.get());
  }
  ~ZmqListener() override {
    members_->servers.Remove(server_.get());
    server_->Leave();
  }
  const std::string& endpoint() const override { return server_->endpoint(); }

 private:
  std::shared_ptr<ZmqServer> server_;
  std::shared_ptr<Members> members_;
};

// All sockets of a thread, with one poll(2) over their descriptors.
class ZmqNetwork final : public Network {
 public:
  ZmqNetwork(std::shared_ptr<ZmqContext> context, const NetworkOptions& options, int wake_fd)
      : context_(std::move(context)), options_(options), wake_fd_(wake_fd) {}
  ~ZmqNetwork() override { close(wake_fd_); }

  Result<std::unique_ptr<Channel>> Connect(std::string_view endpoint,
                                           const ChannelOptions& options) override;
  Result<std::unique_ptr<Listener>> Listen(std::string_view endpoint, Service* service) override;
  Status Redirect(std::string_view from, std::string_view to) override;
  bool Pump(Time now) override;
  void Wait(Time now, Time until) override;
  void Watch(int fd) override { watched_fd_ = fd; }
  void Wake() override {
    const std::uint64_t one = 1;
    // fails only if already awake
    [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
  }

 private:
  // Polls the descriptors for at most `limit`.
  void Poll(Duration limit);

  std::shared_ptr<ZmqContext> context_;
  std::shared_ptr<Members> members_ = std::make_shared<Members>();
  const NetworkOptions options_;
  const int wake_fd_;
  int watched_fd_ = -1;
  Time now_{};
  std::vector<pollfd> polls_;
};

// Rejects configurations whose handshake could never succeed.
Result<std::unique_ptr<Channel>> ZmqNetwork::Connect(std::string_view endpoint,
                                                     const ChannelOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  if (parsed.transport == Endpoint::kTcp && parsed.port == 0) {
    return InvalidArgument("can't connect to {}: port 0 is only for listening", endpoint);
  }
  if (parsed.key && options_.keys == nullptr) {
    return FailedPrecondition("{} requires a key; give one (--key FILE, or security.keys)",
                              endpoint.substr(0, endpoint.find('#')));
  }
  if (parsed.transport == Endpoint::kTcp && options_.keys != nullptr && !parsed.key &&
      options_.keys->coordinators.empty()) {
    return InvalidArgument(
        "{} contains no coordinator key, so the server at {} can't be authenticated",
        options_.keys->file, endpoint);
  }
  auto channel =
      std::make_unique<ZmqChannel>(context_, members_, parsed, NameOf(endpoint), options, options_);
  TROOP_RETURN_IF_ERROR(channel->Open(now_));
  return std::unique_ptr<Channel>(std::move(channel));
}

// Compares names without keys. A channel keeps its id; only its socket is replaced.
Status ZmqNetwork::Redirect(std::string_view from, std::string_view to) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(to));
  const std::string before = NameOf(from), after = NameOf(to);
  if (before == after) return Status::Ok();
  members_->channels.ForEach([&](ZmqChannel& channel) {
    if (channel.endpoint() == before) channel.MoveTo(parsed, after, now_);
  });
  return Status::Ok();
}

Result<std::unique_ptr<Listener>> ZmqNetwork::Listen(std::string_view endpoint, Service* service) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  TROOP_RETURN_IF_ERROR(CheckMayListen(endpoint, options_.keys != nullptr, options_.insecure));
  auto server = std::make_shared<ZmqServer>(service, options_, parsed);
  TROOP_RETURN_IF_ERROR(server->Open(context_, parsed, options_));
  return std::unique_ptr<Listener>(std::make_unique<ZmqListener>(std::move(server), members_));
}

bool ZmqNetwork::Pump(Time now) {
  now_ = now;
  Poll(Duration::zero());
  bool busy = false;
  members_->servers.ForEach([&](ZmqServer& server) {
    // A handler may destroy its listener.
    const auto alive = server.shared_from_this();
    busy |= server.Pump(now);
  });
  members_->channels.ForEach([&](ZmqChannel& channel) { busy |= channel.Pump(now); });
  return busy;
}

// Messages that are already queued cause no new event of a descriptor, so they are checked first.
void ZmqNetwork::Wait(Time now, Time until) {
  bool ready = false;
  members_->servers.ForEach([&](ZmqServer& server) {
    until = std::min(until, server.next_pump());
    ready |= server.socket().Readable();
  });
  members_->channels.ForEach([&](ZmqChannel& channel) {
    until = std::min(until, channel.next_tick());
    ready |= channel.socket().Readable();
  });
  if (!ready && until > now) Poll(until - now);
}

void ZmqNetwork::Poll(Duration limit) {
  // poll(2) ignores negative descriptors.
  polls_ = {{wake_fd_, POLLIN, 0}, {watched_fd_, POLLIN, 0}};
  members_->servers.ForEach([&](ZmqServer& server) { server.socket().AddPolls(polls_); });
  members_->channels.ForEach([&](ZmqChannel& channel) { channel.socket().AddPolls(polls_); });
  constexpr Duration kLongest = Seconds(3600);
  const auto ns = std::min(limit, kLongest).count();
  const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
  if (ppoll(polls_.data(), polls_.size(), &timeout, nullptr) <= 0) return;
  const pollfd* results = polls_.data();
  // The read resets the counter, so several Wakes count as one.
  if ((results++)->revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = read(wake_fd_, &count, sizeof count);
  }
  ++results;  // the watched descriptor is read by its owner
  // In the order of AddPolls above.
  members_->servers.ForEach([&](ZmqServer& server) { server.socket().TakePolls(results); });
  members_->channels.ForEach([&](ZmqChannel& channel) { channel.socket().TakePolls(results); });
}

}  // namespace

Result<std::unique_ptr<Network>> MakeZmqNetwork(const NetworkOptions& options) {
  TROOP_ASSIGN_OR_RETURN(std::shared_ptr<ZmqContext> context, ZmqContext::Get());
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0)
    return ResourceExhausted("can't create an event descriptor: {}", std::strerror(errno));
  return std::unique_ptr<Network>(
      std::make_unique<ZmqNetwork>(std::move(context), options, wake_fd));
}

}  // namespace troop
