// The only file that includes ZeroMQ. Its settings and what they prevent: see SetOptions.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/log.h"
#include "net/call_channel.h"
#include "net/call_server.h"
#include "net/endpoint.h"
#include "net/network.h"
#include "net/roster.h"
#include "net/tcp_guard.h"
#include "net/wire.h"

namespace troop {
namespace {

// Work per socket and Pump.
constexpr int kMessagesPerPump = 256;
constexpr std::size_t kBytesPerPump = std::size_t{32} << 20;
// Before its first valid message a TCP peer may send this much: greeting, handshake and Hello take
// some 300 bytes; without payload, ZeroMQ spends up to 32 bytes of memory per byte of tiny frames.
constexpr std::uint64_t kStrangerBytesMax = 64 << 10;
constexpr Duration kGuardStrangers = Milliseconds(20);
constexpr Duration kGuardKnown = Milliseconds(250);
// Header and part table, beside the payload.
constexpr std::int64_t kFrameSlack = 1 << 20;

std::string ZmqError() { return zmq_strerror(zmq_errno()); }

std::uint64_t RandomId() {
  std::uint64_t id = 0;
  while (id == 0) {
    TROOP_CHECK(getrandom(&id, sizeof id, 0) == sizeof id, "no random numbers: {}",
                std::strerror(errno));
  }
  return id;
}

// One ZeroMQ context (one I/O thread, the inproc names) for all networks of the process that live
// at a time. A forked child can't use its parent's and gets its own.
class Context {
 public:
  static Result<std::shared_ptr<Context>> Get() {
    static std::mutex mutex;
    static std::weak_ptr<Context> current;
    const std::lock_guard lock(mutex);
    std::shared_ptr<Context> context = current.lock();
    if (context != nullptr && context->pid_ == getpid()) return context;
    void* const handle = zmq_ctx_new();
    if (handle == nullptr) return ResourceExhausted("ZeroMQ can't start: {}", ZmqError());
    zmq_ctx_set(handle, ZMQ_MAX_SOCKETS, kSocketsMax);
    context = std::make_shared<Context>(handle);
    current = context;
    return context;
  }
  explicit Context(void* handle) : handle_(handle) {}
  Context(const Context&) = delete;
  ~Context() {
    if (pid_ == getpid()) zmq_ctx_term(handle_);  // waits at most LINGER
  }
  void* handle() const { return handle_; }

 private:
  static constexpr int kSocketsMax = 16384;  // the default of 1023 is two per channel too few
  void* handle_;
  pid_t pid_ = getpid();
};

// A zmq_msg_t that closes itself.
class Frame {
 public:
  Frame() { zmq_msg_init(&message_); }
  Frame(const Frame&) = delete;
  ~Frame() { zmq_msg_close(&message_); }
  zmq_msg_t* get() { return &message_; }
  std::span<const std::byte> bytes() {
    return {static_cast<const std::byte*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }
  bool more() const { return zmq_msg_more(&message_) != 0; }
  // The connection it came by; -1: none (inproc).
  int connection() { return zmq_msg_get(&message_, ZMQ_SRCFD); }

 private:
  mutable zmq_msg_t message_;
};

struct SocketEvent {
  enum Kind { kNone, kAccepted, kReady, kEnded } kind = kNone;
  int connection = -1;
};

// A socket with its monitor. Owner: the thread that made it.
class Socket {
 public:
  Socket() = default;
  Socket(const Socket&) = delete;
  ~Socket() { Close(); }

  Status Open(std::shared_ptr<Context> context, int type, bool monitored,
              const NetworkOptions& options);
  void Close();
  void* get() const { return socket_; }
  template <class T>
  void Set(int option, T value) {
    TROOP_CHECK(zmq_setsockopt(socket_, option, &value, sizeof value) == 0,
                "socket option {}: {}", option, ZmqError());
  }
  int Events() const {
    int events = 0;
    std::size_t size = sizeof events;
    return zmq_getsockopt(socket_, ZMQ_EVENTS, &events, &size) == 0 ? events : 0;
  }
  SocketEvent NextEvent();
  // Until the monitor tells that the listening socket is closed. Blocks, at most `limit`.
  void AwaitClosed(Duration limit);

  // ZeroMQ's descriptors are edge-triggered: readable only until somebody looks, and sending looks
  // too. So after sending, or when not all was read, the socket must be asked itself.
  void MustLook() { look_ = true; }
  void AddPolls(std::vector<pollfd>& polls) const;
  // The next results of the same order.
  void TakePolls(const pollfd*& polls);
  bool TakeLook() { return std::exchange(look_, false); }
  bool TakeEventsPending() { return std::exchange(look_events_, false); }
  // Something to read. No system call when nothing happened.
  bool Readable() {
    if (look_ && (Events() & ZMQ_POLLIN) == 0) look_ = false;
    return look_ || look_events_;
  }

 private:
  static int FdOf(void* socket) {
    int fd = -1;
    std::size_t size = sizeof fd;
    TROOP_CHECK(zmq_getsockopt(socket, ZMQ_FD, &fd, &size) == 0, "{}", ZmqError());
    return fd;
  }
  int ReadEvent(int& connection);

  std::shared_ptr<Context> context_;
  void* socket_ = nullptr;
  void* monitor_ = nullptr;
  int fd_ = -1;
  int monitor_fd_ = -1;
  bool look_ = true;
  bool look_events_ = true;
};

void SetOptions(Socket& socket, const NetworkOptions& options) {
  const auto ms = [](Duration d) {
    return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
  };
  // The last answers get out; a peer that does not read can't hold the process longer.
  socket.Set<int>(ZMQ_LINGER, 250);
  // Bounds memory; as fast as the default of 1000 (measured).
  socket.Set<int>(ZMQ_SNDHWM, 64);
  socket.Set<int>(ZMQ_RCVHWM, 64);
  // Per frame. Without it a claim of 8 GiB is believed.
  socket.Set<std::int64_t>(ZMQ_MAXMSGSIZE,
                           static_cast<std::int64_t>(options.message_bytes_max) + kFrameSlack);
  // From the I/O thread: a stopped or unreachable process loses its connections (kDown). A hung
  // node is not seen by these, but by the beats of CallChannel and CallServer.
  socket.Set<int>(ZMQ_HEARTBEAT_IVL, ms(options.heartbeat_every));
  socket.Set<int>(ZMQ_HEARTBEAT_TIMEOUT, ms(options.dead_after));
  socket.Set<int>(ZMQ_HEARTBEAT_TTL, ms(options.dead_after));
  // A connection that does not shake hands is closed; the default holds it for 30 s.
  socket.Set<int>(ZMQ_HANDSHAKE_IVL, 5000);
  // Unacknowledged bytes break a TCP connection after this; the system's default is minutes.
  socket.Set<int>(ZMQ_TCP_MAXRT, 2 * ms(options.dead_after));
}

Status Socket::Open(std::shared_ptr<Context> context, int type, bool monitored,
                    const NetworkOptions& options) {
  Close();
  context_ = std::move(context);
  socket_ = zmq_socket(context_->handle(), type);
  if (socket_ == nullptr) return ResourceExhausted("no more sockets: {}", ZmqError());
  fd_ = FdOf(socket_);
  look_ = look_events_ = true;
  SetOptions(*this, options);
  if (!monitored) return Status::Ok();
  const std::string address = fmt::format("inproc://monitor-{}", fmt::ptr(socket_));
  constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                          ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED;
  monitor_ = zmq_socket(context_->handle(), ZMQ_PAIR);
  // Unlimited: at a limit the I/O thread would block until we read.
  const int no_limit = 0;
  if (monitor_ == nullptr || zmq_socket_monitor(socket_, address.c_str(), kEvents) != 0 ||
      zmq_setsockopt(monitor_, ZMQ_RCVHWM, &no_limit, sizeof no_limit) != 0 ||
      zmq_setsockopt(monitor_, ZMQ_LINGER, &no_limit, sizeof no_limit) != 0 ||
      zmq_connect(monitor_, address.c_str()) != 0) {
    const Status failed = ResourceExhausted("no socket monitor: {}", ZmqError());
    Close();
    return failed;
  }
  monitor_fd_ = FdOf(monitor_);
  return Status::Ok();
}

void Socket::Close() {
  if (socket_ == nullptr) return;
  if (monitor_ != nullptr) {
    zmq_socket_monitor(socket_, nullptr, 0);
    zmq_close(monitor_);
  }
  zmq_close(socket_);
  socket_ = monitor_ = nullptr;
}

int Socket::ReadEvent(int& connection) {
  Frame head;
  if (zmq_msg_recv(head.get(), monitor_, ZMQ_DONTWAIT) < 0) return 0;
  std::uint16_t event = 0;
  std::uint32_t value = 0;
  if (head.bytes().size() == sizeof event + sizeof value) {
    std::memcpy(&event, head.bytes().data(), sizeof event);
    std::memcpy(&value, head.bytes().data() + sizeof event, sizeof value);
  }
  connection = static_cast<int>(value);
  Frame address;
  if (head.more()) zmq_msg_recv(address.get(), monitor_, ZMQ_DONTWAIT);
  return event;
}

SocketEvent Socket::NextEvent() {
  if (monitor_ == nullptr) return {};
  SocketEvent event;
  while (const int kind = ReadEvent(event.connection)) {
    if (kind == ZMQ_EVENT_ACCEPTED) event.kind = SocketEvent::kAccepted;
    if (kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) event.kind = SocketEvent::kReady;
    if (kind == ZMQ_EVENT_DISCONNECTED) event.kind = SocketEvent::kEnded;
    if (event.kind != SocketEvent::kNone) return event;
  }
  return {};
}

void Socket::AwaitClosed(Duration limit) {
  const SystemClock clock;
  const Time end = clock.Now() + limit;
  for (int connection = -1; clock.Now() < end;) {
    zmq_pollitem_t item{monitor_, 0, ZMQ_POLLIN, 0};
    zmq_poll(&item, 1, 10);
    for (int kind = ReadEvent(connection); kind != 0; kind = ReadEvent(connection)) {
      if (kind == ZMQ_EVENT_CLOSED) return;
    }
  }
}

void Socket::AddPolls(std::vector<pollfd>& polls) const {
  polls.push_back({fd_, POLLIN, 0});
  if (monitor_ != nullptr) polls.push_back({monitor_fd_, POLLIN, 0});
}

void Socket::TakePolls(const pollfd*& polls) {
  if ((polls++)->revents != 0) look_ = true;
  if (monitor_ != nullptr && (polls++)->revents != 0) look_events_ = true;
}

// Runs on ZeroMQ's I/O thread when the last byte has left. (Freeing the bytes earlier makes libzmq
// abort the process.)
void ReleaseBuffer(void* /*data*/, void* hint) { delete static_cast<Buffer*>(hint); }

// `route`: the peer of a ROUTER; empty for a DEALER. Only the first frame can be refused; the
// others follow into the same queue.
CallServer::Sent SendFrames(void* socket, std::span<const std::byte> route,
                            const Envelope& envelope, const Message& message) {
  if (!route.empty() &&
      zmq_send(socket, route.data(), route.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
    return zmq_errno() == EAGAIN ? CallServer::Sent::kFull : CallServer::Sent::kGone;
  }
  auto big = static_cast<std::size_t>(
      std::count_if(message.parts.begin(), message.parts.end(),
                    [](const Buffer& part) { return IsBigPart(part.size()); }));
  const std::size_t bytes = FirstFrameBytes(message);
  Frame first;
  TROOP_CHECK(zmq_msg_init_size(first.get(), bytes) == 0, "out of memory: {} bytes", bytes);
  EncodeFirstFrame(envelope, message,
                   {static_cast<std::byte*>(zmq_msg_data(first.get())), bytes});
  if (zmq_msg_send(first.get(), socket, ZMQ_DONTWAIT | (big > 0 ? ZMQ_SNDMORE : 0)) < 0) {
    return zmq_errno() == EAGAIN ? CallServer::Sent::kFull : CallServer::Sent::kGone;
  }
  for (const Buffer& part : message.parts) {
    if (!IsBigPart(part.size())) continue;
    Frame frame;
    auto owner = std::make_unique<Buffer>(part);
    zmq_msg_init_data(frame.get(), const_cast<std::byte*>(part.data()), part.size(),
                      ReleaseBuffer, owner.release());
    if (zmq_msg_send(frame.get(), socket, ZMQ_DONTWAIT | (--big > 0 ? ZMQ_SNDMORE : 0)) < 0) {
      return CallServer::Sent::kGone;  // the connection ended between two frames
    }
  }
  return CallServer::Sent::kYes;
}

// A frame of a received message as a Buffer that owns it, without a copy (unless it lies so that
// numbers of 8 bytes could not be read in place).
Buffer KeepFrame(std::shared_ptr<Frame> frame) {
  const std::span<const std::byte> bytes = frame->bytes();
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(std::uint64_t) != 0) {
    return Buffer::Copy(bytes);
  }
  return Buffer(std::move(frame), bytes);
}

struct Incoming {
  Envelope envelope;
  Message message;
  std::size_t bytes = 0;
};

// Decodes the message that starts with `first` and takes its other frames off the socket in any
// case. What does not belong is dropped frame by frame.
Result<Incoming> ReceiveRest(void* socket, Frame& first, const WireLimits& limits) {
  const Result<WireHeader> header = CheckFirstFrame(first.bytes(), limits);
  std::vector<Buffer> big;
  std::size_t bytes = first.bytes().size();
  std::size_t surplus = 0;
  for (bool more = first.more(); more;) {
    auto frame = std::make_shared<Frame>();
    if (zmq_msg_recv(frame->get(), socket, ZMQ_DONTWAIT) < 0) break;
    more = frame->more();
    if (header.ok() && big.size() < static_cast<std::size_t>(header->big_parts)) {
      bytes += frame->bytes().size();
      big.push_back(KeepFrame(std::move(frame)));
    } else {
      ++surplus;
    }
  }
  if (!header.ok()) return header.status();
  if (surplus > 0) return DataLoss("{} frames too many follow a message", surplus);
  TROOP_ASSIGN_OR_RETURN(Message message, DecodeMessage(*header, first.bytes(), std::move(big)));
  return Incoming{header->envelope, std::move(message), bytes};
}

// A routing id is 'T' and the channel's id, so that a client has the same one on each connection.
using Route = std::array<std::byte, 9>;
Route RouteOf(std::uint64_t channel) {
  Route route;
  route[0] = std::byte{'T'};
  std::memcpy(route.data() + 1, &channel, sizeof channel);
  return route;
}

class ZmqChannel;
class ZmqServer;
struct Members {
  Roster<ZmqChannel> channels;
  Roster<ZmqServer> servers;
};

class ZmqChannel final : public CallChannel {
 public:
  ZmqChannel(std::shared_ptr<Context> context, std::shared_ptr<Members> members,
             const Endpoint& endpoint, std::string name, const ChannelOptions& channel,
             const NetworkOptions& network)
      : CallChannel(std::move(name), channel, network, RandomId(),
                    endpoint.transport != Endpoint::kInproc),
        context_(std::move(context)),
        members_(std::move(members)),
        transport_(endpoint.transport),
        network_(network),
        limits_{network.message_bytes_max, network.parts_max} {
    members_->channels.Add(this);
  }
  ~ZmqChannel() override {
    SayGoodbye();
    members_->channels.Remove(this);
  }

  Status Open(Time now);
  bool Pump(Time now);
  Socket& socket() { return socket_; }

 protected:
  bool Transmit(const Envelope& envelope, const Message& message) override;

 private:
  bool Read(Time now);

  std::shared_ptr<Context> context_;
  std::shared_ptr<Members> members_;
  const Endpoint::Transport transport_;
  const NetworkOptions network_;
  const WireLimits limits_;
  Socket socket_;
  bool full_ = false;
};

Status ZmqChannel::Open(Time now) {
  const bool inproc = transport_ == Endpoint::kInproc;
  TROOP_RETURN_IF_ERROR(socket_.Open(context_, ZMQ_DEALER, !inproc, network_));
  const Route route = RouteOf(id());
  zmq_setsockopt(socket_.get(), ZMQ_ROUTING_ID, route.data(), route.size());
  // No queue before the connection stands: what is sent is on its way, else we keep it.
  if (!inproc) socket_.Set<int>(ZMQ_IMMEDIATE, 1);
  // Exponential, so that a fleet does not storm a server that comes back. On one machine a try is
  // cheap and a start should not wait.
  socket_.Set<int>(ZMQ_RECONNECT_IVL, transport_ == Endpoint::kTcp ? 100 : 20);
  socket_.Set<int>(ZMQ_RECONNECT_IVL_MAX, transport_ == Endpoint::kTcp ? 5000 : 200);
  if (zmq_connect(socket_.get(), endpoint().c_str()) != 0) {
    return InvalidArgument("can't connect to {}: {}", endpoint(), ZmqError());
  }
  if (inproc) Connected(now);
  return Status::Ok();
}

bool ZmqChannel::Pump(Time now) {
  bool busy = false;
  if (socket_.TakeEventsPending()) {
    for (SocketEvent e = socket_.NextEvent(); e.kind != SocketEvent::kNone;
         e = socket_.NextEvent()) {
      busy = true;
      if (e.kind == SocketEvent::kReady) Connected(now);
      if (e.kind == SocketEvent::kEnded) Disconnected(now);
    }
  }
  if (socket_.TakeLook()) busy |= Read(now);
  if (transport_ == Endpoint::kInproc && silent() && (socket_.Events() & ZMQ_POLLOUT) == 0) {
    // ZeroMQ does not connect inproc again when the listener has gone, and tells nobody.
    Disconnected(now);
    if (const Status opened = Open(now); !opened.ok()) Fail(opened);
    Disconnected(now);
  }
  full_ = false;
  return Tick(now) || busy;
}

bool ZmqChannel::Read(Time now) {
  std::size_t bytes = 0;
  for (int n = 0; n < kMessagesPerPump && bytes < kBytesPerPump; ++n) {
    Frame first;
    if (zmq_msg_recv(first.get(), socket_.get(), ZMQ_DONTWAIT) < 0) return n > 0;
    Result<Incoming> incoming = ReceiveRest(socket_.get(), first, limits_);
    if (incoming.ok()) {
      bytes += incoming->bytes;
      Receive(incoming->envelope, std::move(incoming->message), now);
    } else if (incoming.status().code() == Code::kFailedPrecondition) {
      Fail(incoming.status().WithContext(endpoint()));
    } else {
      LogWarning("{}: dropped: {}", endpoint(), incoming.status().message());
    }
  }
  socket_.MustLook();
  return true;
}

bool ZmqChannel::Transmit(const Envelope& envelope, const Message& message) {
  if (full_ || socket_.get() == nullptr) return false;  // once per Pump is enough
  const bool sent =
      SendFrames(socket_.get(), {}, envelope, message) == CallServer::Sent::kYes;
  full_ = !sent;
  socket_.MustLook();
  return sent;
}

class ZmqServer final : public CallServer {
 public:
  ZmqServer(Service* service, const NetworkOptions& network, const Endpoint& endpoint)
      : CallServer(service, network, RandomId(), endpoint.transport != Endpoint::kInproc),
        transport_(endpoint.transport),
        limits_{network.message_bytes_max, network.parts_max},
        guard_(kStrangerBytesMax, network.message_bytes_max + kFrameSlack) {}

  Status Open(const std::shared_ptr<Context>& context, const Endpoint& endpoint,
              const NetworkOptions& network);
  // Off the wire when it returns: the endpoint is free again. Replies may hold the object longer.
  void Leave();
  bool Pump(Time now);
  Time next_pump() const;
  Socket& socket() { return socket_; }
  const std::string& endpoint() const { return endpoint_; }

 protected:
  Sent Transmit(std::uint64_t channel, const Envelope& envelope, const Message& message) override;

 private:
  Status Bind(const Endpoint& endpoint);
  bool Read(Time now);
  void Accept(Frame& id, Frame& first, Incoming incoming, Time now);
  void Reject(Frame& id, Frame& first, const Status& why);
  void Guard(Time now);

  const Endpoint::Transport transport_;
  const WireLimits limits_;
  std::string endpoint_;
  IpcSocket ipc_;  // outlives the socket
  Socket socket_;
  TcpGuard guard_;
  Time next_guard_{};
  // TCP only: by which connection a channel came last, asked anew after each change of connections.
  struct Way {
    std::uint64_t change = 0;
    int connection = -1;
  };
  std::unordered_map<std::uint64_t, Way> ways_;
  std::uint64_t changes_ = 1;
  std::uint64_t rejected_ = 0;
};

Status ZmqServer::Open(const std::shared_ptr<Context>& context, const Endpoint& endpoint,
                       const NetworkOptions& network) {
  TROOP_RETURN_IF_ERROR(
      socket_.Open(context, ZMQ_ROUTER, transport_ != Endpoint::kInproc, network));
  // A full or absent peer is an error, not a silent drop.
  socket_.Set<int>(ZMQ_ROUTER_MANDATORY, 1);
  // A client that comes back on a new connection takes its route over from the dead one; without
  // it, ZeroMQ drops the new one's messages silently. Impostors are fenced by incarnation.
  socket_.Set<int>(ZMQ_ROUTER_HANDOVER, 1);
  socket_.Set<int>(ZMQ_BACKLOG, 1024);
  return Bind(endpoint);
}

Status ZmqServer::Bind(const Endpoint& endpoint) {
  static constexpr std::array<std::string_view, 3> kSchemes{"ipc://", "tcp://", "inproc://"};
  const std::string name = std::string(kSchemes[endpoint.transport]) + endpoint.address;
  if (endpoint.transport == Endpoint::kIpc) {
    TROOP_ASSIGN_OR_RETURN(ipc_, IpcSocket::Bind(endpoint.address));
    socket_.Set<int>(ZMQ_USE_FD, ipc_.ReleaseFd());
  }
  if (zmq_bind(socket_.get(), name.c_str()) != 0) {
    const int error = zmq_errno();
    if (error != EADDRINUSE) return InvalidArgument("can't listen on {}: {}", name, ZmqError());
    if (endpoint.transport == Endpoint::kInproc) {
      return AlreadyExists("{} is in use by this process; choose another name", name);
    }
    const pid_t holder = HolderOfPort(endpoint.port);
    return AlreadyExists("{}: the port is in use by {}; stop it, or use port 0 for any free one",
                         name, holder == 0 ? "another process" : fmt::format("process {}", holder));
  }
  char real[1024];
  std::size_t size = sizeof real;
  TROOP_CHECK(zmq_getsockopt(socket_.get(), ZMQ_LAST_ENDPOINT, real, &size) == 0, "{}",
              ZmqError());
  endpoint_ = endpoint.transport == Endpoint::kTcp ? real : name;
  return Status::Ok();
}

void ZmqServer::Leave() {
  Close();
  if (socket_.get() == nullptr) return;
  zmq_unbind(socket_.get(), endpoint_.c_str());
  if (transport_ == Endpoint::kTcp) socket_.AwaitClosed(Milliseconds(500));
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
      ++changes_;
      if (transport_ == Endpoint::kTcp && e.kind == SocketEvent::kAccepted) {
        guard_.Accepted(e.connection);
      } else if (e.kind == SocketEvent::kEnded) {
        guard_.Closed(e.connection);
        ended = true;
      }
    }
  }
  if (socket_.TakeLook()) busy |= Read(now);
  if (closed()) return true;
  if (ended) Probe(now);
  if (transport_ == Endpoint::kTcp) Guard(now);
  return Tick(now) || busy;
}

bool ZmqServer::Read(Time now) {
  std::size_t bytes = 0;
  for (int n = 0; n < kMessagesPerPump && bytes < kBytesPerPump; ++n) {
    Frame id;
    if (zmq_msg_recv(id.get(), socket_.get(), ZMQ_DONTWAIT) < 0) return n > 0;
    Frame first;
    if (!id.more() || zmq_msg_recv(first.get(), socket_.get(), ZMQ_DONTWAIT) < 0) continue;
    Result<Incoming> incoming = ReceiveRest(socket_.get(), first, limits_);
    if (!incoming.ok()) {
      Reject(id, first, incoming.status());
      continue;
    }
    bytes += incoming->bytes;
    Accept(id, first, std::move(incoming).value(), now);
    if (closed()) return true;
  }
  socket_.MustLook();
  return true;
}

void ZmqServer::Accept(Frame& id, Frame& first, Incoming incoming, Time now) {
  const std::uint64_t channel = incoming.envelope.channel;
  const Route route = RouteOf(channel);
  if (!std::ranges::equal(id.bytes(), std::span<const std::byte>(route))) {
    return Reject(id, first, DataLoss("a message names a channel that is not its sender's"));
  }
  if (transport_ == Endpoint::kTcp) {
    Way& way = ways_[channel];
    if (way.change != changes_) way = {changes_, first.connection()};
    guard_.Delivered(way.connection);
  }
  const Status received = Receive(incoming.envelope, std::move(incoming.message), now);
  if (!received.ok()) Reject(id, first, received);
}

// Nobody of ours sends this: the peer is cut off. One of another release is told ours first.
void ZmqServer::Reject(Frame& id, Frame& first, const Status& why) {
  ++rejected_;
  if ((rejected_ & (rejected_ - 1)) == 0) {  // 1, 2, 4, …: a flood must not flood the log
    LogWarning("{}: message {} refused: {}", endpoint_, rejected_, why.message());
  }
  if (why.code() == Code::kFailedPrecondition) {
    SendFrames(socket_.get(), id.bytes(), {.flags = kFlagBeat}, {.type = MessageType::kHeartbeat});
    socket_.MustLook();
  } else if (const int connection = first.connection(); connection >= 0) {
    shutdown(connection, SHUT_RDWR);
  }
}

void ZmqServer::Guard(Time now) {
  if (now < next_guard_) return;
  for (const std::string& peer : guard_.Check()) {
    LogWarning("{}: cut {} off: it sends a message without end", endpoint_, peer);
  }
  next_guard_ = now + (guard_.watches_strangers() ? kGuardStrangers : kGuardKnown);
  if (ways_.size() > 2 * clients() + 64) ways_.clear();  // of those who left
}

Time ZmqServer::next_pump() const {
  return transport_ == Endpoint::kTcp && guard_.watches_strangers()
             ? std::min(next_tick(), next_guard_)
             : next_tick();
}

CallServer::Sent ZmqServer::Transmit(std::uint64_t channel, const Envelope& envelope,
                                     const Message& message) {
  const Route route = RouteOf(channel);
  socket_.MustLook();
  return SendFrames(socket_.get(), route, envelope, message);
}

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

class ZmqNetwork final : public Network {
 public:
  ZmqNetwork(std::shared_ptr<Context> context, const NetworkOptions& options, int wake_fd)
      : context_(std::move(context)), options_(options), wake_fd_(wake_fd) {}
  ~ZmqNetwork() override { close(wake_fd_); }

  Result<std::unique_ptr<Channel>> Connect(std::string_view endpoint,
                                           const ChannelOptions& options) override;
  Result<std::unique_ptr<Listener>> Listen(std::string_view endpoint, Service* service) override;
  bool Pump(Time now) override;
  void Wait(Time now, Time until) override;
  void Wake() override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);  // full: awake
  }

 private:
  // Asks the system which descriptors are readable, waiting at most `limit`.
  void Poll(Duration limit);

  std::shared_ptr<Context> context_;
  std::shared_ptr<Members> members_ = std::make_shared<Members>();
  const NetworkOptions options_;
  const int wake_fd_;
  Time now_{};
  std::vector<pollfd> polls_;
};

Result<std::unique_ptr<Channel>> ZmqNetwork::Connect(std::string_view endpoint,
                                                     const ChannelOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  if (parsed.transport == Endpoint::kTcp && parsed.port == 0) {
    return InvalidArgument("can't connect to {}: port 0 is only for listening", endpoint);
  }
  auto channel = std::make_unique<ZmqChannel>(context_, members_, parsed, std::string(endpoint),
                                              options, options_);
  TROOP_RETURN_IF_ERROR(channel->Open(now_));
  return std::unique_ptr<Channel>(std::move(channel));
}

Result<std::unique_ptr<Listener>> ZmqNetwork::Listen(std::string_view endpoint, Service* service) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  auto server = std::make_shared<ZmqServer>(service, options_, parsed);
  TROOP_RETURN_IF_ERROR(server->Open(context_, parsed, options_));
  return std::unique_ptr<Listener>(std::make_unique<ZmqListener>(std::move(server), members_));
}

bool ZmqNetwork::Pump(Time now) {
  now_ = now;
  Poll(Duration::zero());
  bool busy = false;
  members_->servers.ForEach([&](ZmqServer& server) {
    const auto alive = server.shared_from_this();
    busy |= server.Pump(now);
  });
  members_->channels.ForEach([&](ZmqChannel& channel) { busy |= channel.Pump(now); });
  return busy;
}

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
  polls_.assign(1, {wake_fd_, POLLIN, 0});
  members_->servers.ForEach([&](ZmqServer& server) { server.socket().AddPolls(polls_); });
  members_->channels.ForEach([&](ZmqChannel& channel) { channel.socket().AddPolls(polls_); });
  constexpr Duration kLongest = Seconds(3600);
  const auto ns = std::min(limit, kLongest).count();
  const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
  if (ppoll(polls_.data(), polls_.size(), &timeout, nullptr) <= 0) return;
  const pollfd* results = polls_.data();
  if ((results++)->revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = read(wake_fd_, &count, sizeof count);
  }
  members_->servers.ForEach([&](ZmqServer& server) { server.socket().TakePolls(results); });
  members_->channels.ForEach([&](ZmqChannel& channel) { channel.socket().TakePolls(results); });
}

}  // namespace

Result<std::unique_ptr<Network>> MakeZmqNetwork(const NetworkOptions& options) {
  TROOP_ASSIGN_OR_RETURN(std::shared_ptr<Context> context, Context::Get());
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) return ResourceExhausted("no event descriptor: {}", std::strerror(errno));
  return std::unique_ptr<Network>(
      std::make_unique<ZmqNetwork>(std::move(context), options, wake_fd));
}

}  // namespace troop
