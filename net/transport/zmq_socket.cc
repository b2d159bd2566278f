// Implements ZmqSocket and ZmqContext. SetOptions explains the ZeroMQ settings.
#include "net/transport/zmq_socket.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "net/transport/host_name.h"
#include "net/wire/shared_memory.h"

// ZeroMQ passes frames between threads in ways that are invisible to the thread sanitizer.
#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#define TROOP_HANDS_OVER(address) __tsan_release(address)
#define TROOP_TAKES_OVER(address) __tsan_acquire(address)
#else
#define TROOP_HANDS_OVER(address) static_cast<void>(address)
#define TROOP_TAKES_OVER(address) static_cast<void>(address)
#endif

namespace troop {
namespace {

// Each channel needs a socket and a monitor of two sockets; the default of 1023 would suffice for
// about 340 channels.
constexpr int kSocketsMax = 16384;
// Frame overhead in addition to the payload: header and part table.
constexpr std::int64_t kFrameSlack = 1 << 20;
// Fastest of 128 KiB to 4 MiB for 100 MB in each direction (bench/run paramserver); the kernel
// doubles it.
constexpr int kLoopbackSendBuffer = 512 << 10;

// Repeats a ZeroMQ call until no signal interrupts it. Every call first processes commands of the
// I/O thread, and fails with EINTR if a signal arrives at that moment, even if it would not have
// blocked.
template <class F>
int Uninterrupted(const F& call) {
  int result = 0;
  do {
    result = call();
  } while (result < 0 && zmq_errno() == EINTR);
  return result;
}

// A zmq_msg_t that is closed by its destructor.
class Frame {
 public:
  Frame() { zmq_msg_init(&message_); }
  Frame(const Frame&) = delete;
  ~Frame() { zmq_msg_close(&message_); }
  zmq_msg_t* get() { return &message_; }
  void Clear() {
    zmq_msg_close(&message_);
    zmq_msg_init(&message_);
  }
  std::span<const std::byte> bytes() {
    return {static_cast<const std::byte*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }
  bool more() const { return zmq_msg_more(&message_) != 0; }
  bool Receive(void* socket) {
    const auto receive = [&] { return zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT); };
    if (Uninterrupted(receive) < 0) return false;
    TROOP_TAKES_OVER(zmq_msg_data(&message_));
    return true;
  }
  bool Send(void* socket, bool more) {
    TROOP_HANDS_OVER(zmq_msg_data(&message_));
    const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
    return Uninterrupted([&] { return zmq_msg_send(&message_, socket, flags); }) >= 0;
  }

 private:
  zmq_msg_t message_;
};

template <class T>
void Set(void* socket, int option, T value) {
  const auto set = [&] { return zmq_setsockopt(socket, option, &value, sizeof value); };
  TROOP_CHECK(Uninterrupted(set) == 0, "socket option {}: {}", option, zmq_strerror(zmq_errno()));
}

int GetInt(void* socket, int option) {
  int value = 0;
  std::size_t size = sizeof value;
  const auto get = [&] { return zmq_getsockopt(socket, option, &value, &size); };
  TROOP_CHECK(Uninterrupted(get) == 0, "socket option {}: {}", option, zmq_strerror(zmq_errno()));
  return value;
}

void SetBytes(void* socket, int option, std::string_view bytes) {
  const auto set = [&] { return zmq_setsockopt(socket, option, bytes.data(), bytes.size()); };
  TROOP_CHECK(Uninterrupted(set) == 0, "socket option {}: {}", option, zmq_strerror(zmq_errno()));
}

std::string_view Bytes(const PublicKey& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

// CURVE: the client has the server's key; the server queries the ZAP handler about the client's
// key.
void SetKeys(void* socket, const KeyRing& ring, const PublicKey* server) {
  SetBytes(socket, ZMQ_CURVE_SECRETKEY, Bytes(ring.secret_key.bytes()));
  if (server == nullptr) {
    Set<int>(socket, ZMQ_CURVE_SERVER, 1);
    SetBytes(socket, ZMQ_ZAP_DOMAIN, ring.domain);
  } else {
    SetBytes(socket, ZMQ_CURVE_PUBLICKEY, Bytes(ring.public_key));
    SetBytes(socket, ZMQ_CURVE_SERVERKEY, Bytes(*server));
  }
}

void SetOptions(void* socket, ZmqSocket::Kind kind, const Endpoint& endpoint,
                const NetworkOptions& options) {
  const Endpoint::Transport transport = endpoint.transport;
  const auto ms = [](Duration d) {
    return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
  };
  // Time to send the last answers after close, even if this process or its peer is not scheduled
  // for a while: a peer that misses the end of a run would take its coordinator for dead. A peer
  // that does not read can't delay the exit longer, and an absent peer delays only clients.
  Set<int>(socket, ZMQ_LINGER, kind == ZmqSocket::kServer ? 2000 : 250);
  // Bounds the memory; measured to be as fast as the default of 1000.
  Set<int>(socket, ZMQ_SNDHWM, 64);
  // Limit per frame. Without it ZeroMQ accepts a claimed size of 8 GiB.
  Set<std::int64_t>(socket, ZMQ_MAXMSGSIZE,
                    static_cast<std::int64_t>(options.message_bytes_max) + kFrameSlack);
  // Rejects peers of ZMTP 1 and 2, which have no security and reach an assertion of libzmq if their
  // pipe ends early (zmtp_engine.cpp, process_routing_id_msg). Without a ZAP handler, or without
  // keys, peers of ZMTP 3 are admitted as before.
  SetBytes(socket, ZMQ_ZAP_DOMAIN, "troop");
  // Timeout of the handshake; the default keeps such a connection for 30 s.
  Set<int>(socket, ZMQ_HANDSHAKE_IVL, 5000);
  // Closes a TCP connection with unacknowledged bytes after this time; the system default is
  // minutes.
  Set<int>(socket, ZMQ_TCP_MAXRT, 2 * ms(options.dead_after));
  // Otherwise the kernel retries a stale address for two minutes, although the name may have a new
  // one. Names are resolved only at each connection attempt.
  Set<int>(socket, ZMQ_CONNECT_TIMEOUT, 2 * ms(options.dead_after));
  // The automatic buffer of the kernel grows to 4 MiB, which leaves the CPU caches before the
  // reader copies it. Links between hosts keep it, because long links need that much in flight.
  if (IsLoopback(endpoint)) Set<int>(socket, ZMQ_SNDBUF, kLoopbackSendBuffer);
  if (kind == ZmqSocket::kServer) {
    Set<int>(socket, ZMQ_RCVHWM, 64);
    // Reports a full or absent peer as an error instead of dropping the message.
    Set<int>(socket, ZMQ_ROUTER_MANDATORY, 1);
    // A client that reconnects takes over the route of its dead connection. Otherwise ZeroMQ
    // silently drops messages of the new one. Impostors are fenced by incarnation.
    Set<int>(socket, ZMQ_ROUTER_HANDOVER, 1);
    Set<int>(socket, ZMQ_BACKLOG, 1024);
    return;
  }
  // Heartbeats of the I/O thread: a stopped or unreachable process loses its connections (kDown).
  // The client sends them; the server answers and uses the client's TTL. A server that sends them
  // too, or a client with a limited queue, makes libzmq 4.3.4 abort
  // (docs/decisions/0005-sockets.md).
  Set<int>(socket, ZMQ_HEARTBEAT_IVL, ms(options.heartbeat_every));
  Set<int>(socket, ZMQ_HEARTBEAT_TIMEOUT, ms(options.dead_after));
  Set<int>(socket, ZMQ_HEARTBEAT_TTL, ms(options.dead_after));
  Set<int>(socket, ZMQ_RCVHWM, 0);
  // No queue before the connection is established: the channel keeps unsent messages itself. An
  // inproc socket has no connection phase.
  if (transport != Endpoint::kInproc) Set<int>(socket, ZMQ_IMMEDIATE, 1);
  // Exponential backoff, so that a fleet does not overload a restarted server.
  Set<int>(socket, ZMQ_RECONNECT_IVL, transport == Endpoint::kTcp ? 100 : 20);
  Set<int>(socket, ZMQ_RECONNECT_IVL_MAX, transport == Endpoint::kTcp ? 5000 : 200);
}

SocketEvent::Refusal RefusalOf(int event, int value) {
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return SocketEvent::kNotAllowed;
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) return SocketEvent::kEnd;
  if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) return SocketEvent::kMechanism;
  return value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC ? SocketEvent::kCipher
                                                        : SocketEvent::kProtocol;
}

// Runs on the I/O thread of ZeroMQ after the last byte was sent. Freeing the bytes earlier makes
// libzmq abort the process.
void ReleaseBuffer(void* /*data*/, void* hint) {
  TROOP_TAKES_OVER(hint);
  delete static_cast<Buffer*>(hint);
}

// Wraps a received frame in a Buffer that owns it. Copies only if the frame is not aligned for
// 8-byte values.
Buffer KeepFrame(std::shared_ptr<Frame> frame) {
  const std::span<const std::byte> bytes = frame->bytes();
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(std::uint64_t) != 0) {
    return Buffer::Copy(bytes);
  }
  return Buffer(std::move(frame), bytes);
}

}  // namespace

// The loaded library may be newer than the headers.
PackageVersion ZmqPackage() {
  int major = 0, minor = 0, patch = 0;
  zmq_version(&major, &minor, &patch);
  return {"ZeroMQ", fmt::format("{}.{}.{}", major, minor, patch)};
}

ZmqContext::ZmqContext(void* handle) : handle_(handle), pid_(getpid()) {}

ZmqContext::~ZmqContext() {
  if (pid_ != getpid()) {
    // In a forked child neither the context nor the thread exists.
    if (zap_) zap_->Abandon();
    return;
  }
  if (zap_) {
    zmq_ctx_shutdown(handle_);  // ends the thread of zap_
    zap_.reset();
  }
  zmq_ctx_term(handle_);
}

Status ZmqContext::Admit(const KeyRing& ring) {
  const std::lock_guard lock(mutex_);
  if (!zap_) {
    TROOP_ASSIGN_OR_RETURN(zap_, ZapHandler::Start(handle_));
  }
  zap_->Serve(ring);
  return Status::Ok();
}

Result<std::shared_ptr<ZmqContext>> ZmqContext::Get() {
  static std::mutex mutex;
  static std::weak_ptr<ZmqContext> current;
  const std::lock_guard lock(mutex);
  std::shared_ptr<ZmqContext> context = current.lock();
  if (context != nullptr && context->pid_ == getpid()) return context;
  void* const handle = zmq_ctx_new();
  if (handle == nullptr) {
    return ResourceExhausted("can't start ZeroMQ: {}", zmq_strerror(zmq_errno()));
  }
  zmq_ctx_set(handle, ZMQ_MAX_SOCKETS, kSocketsMax);
  context = std::make_shared<ZmqContext>(handle);
  current = context;
  return context;
}

// The ZeroMQ objects of an open socket, closed in the required order.
struct ZmqSocket::Handles {
  Kind kind = kClient;
  void* socket = nullptr;
  void* monitor = nullptr;  // null for inproc
  int fd = -1;
  int monitor_fd = -1;
  Frame sender;  // routing id of the sender of the last message
  Frame first;
  SharedBufferReader parts;
  bool local = false;  // ipc: peers are of this user, and may send tickets

  Handles() = default;
  Handles(const Handles&) = delete;
  ~Handles() {
    if (monitor != nullptr) {
      zmq_socket_monitor(socket, nullptr, 0);
      zmq_close(monitor);
    }
    if (socket != nullptr) zmq_close(socket);
  }
  // Returns the next event of the monitor; 0 if none.
  int ReadEvent(int& connection) const {
    Frame head;
    if (!head.Receive(monitor)) return 0;
    std::uint16_t event = 0;
    std::uint32_t value = 0;
    TROOP_CHECK(head.bytes().size() == sizeof event + sizeof value,
                "a monitor event has an unknown format");
    std::memcpy(&event, head.bytes().data(), sizeof event);
    std::memcpy(&value, head.bytes().data() + sizeof event, sizeof value);
    connection = static_cast<int>(value);
    Frame address;
    if (head.more()) address.Receive(monitor);
    return event;
  }
};

ZmqSocket::ZmqSocket() = default;
ZmqSocket::~ZmqSocket() = default;

Status ZmqSocket::Open(std::shared_ptr<ZmqContext> context, Kind kind, const Endpoint& endpoint,
                       const NetworkOptions& options, const PublicKey* server) {
  Close();
  context_ = std::move(context);
  const bool keys = endpoint.transport == Endpoint::kTcp && options.keys != nullptr;
  if (keys && kind == kServer) TROOP_RETURN_IF_ERROR(context_->Admit(*options.keys));
  handles_ = std::make_unique<Handles>();
  handles_->kind = kind;
  handles_->local = endpoint.transport == Endpoint::kIpc;
  handles_->socket = zmq_socket(context_->handle(), kind == kServer ? ZMQ_ROUTER : ZMQ_DEALER);
  if (handles_->socket == nullptr) {
    Close();
    return ResourceExhausted("can't create a socket: {}", zmq_strerror(zmq_errno()));
  }
  handles_->fd = GetInt(handles_->socket, ZMQ_FD);
  look_ = look_events_ = true;
  SetOptions(handles_->socket, kind, endpoint, options);
  if (keys) SetKeys(handles_->socket, *options.keys, kind == kClient ? server : nullptr);
  return endpoint.transport == Endpoint::kInproc ? Status::Ok() : OpenMonitor();
}

Status ZmqSocket::OpenMonitor() {
  const std::string address = fmt::format("inproc://monitor-{}", fmt::ptr(handles_->socket));
  constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                          ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED |
                          ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
  void*& monitor = handles_->monitor;
  monitor = zmq_socket(context_->handle(), ZMQ_PAIR);
  if (monitor == nullptr) {
    Close();
    return ResourceExhausted("can't create a socket: {}", zmq_strerror(zmq_errno()));
  }
  // Unlimited: at a limit the I/O thread would block until the monitor is read.
  Set<int>(monitor, ZMQ_RCVHWM, 0);
  Set<int>(monitor, ZMQ_LINGER, 0);
  const auto watch = [&] { return zmq_socket_monitor(handles_->socket, address.c_str(), kEvents); };
  const auto connect = [&] { return zmq_connect(monitor, address.c_str()); };
  if (Uninterrupted(watch) != 0 || Uninterrupted(connect) != 0) {
    const Status failed =
        ResourceExhausted("can't create a socket monitor: {}", zmq_strerror(zmq_errno()));
    Close();
    return failed;
  }
  handles_->monitor_fd = GetInt(monitor, ZMQ_FD);
  return Status::Ok();
}

void ZmqSocket::Close() { handles_.reset(); }

bool ZmqSocket::is_open() const { return handles_ != nullptr; }

// Enabled for IPv6 addresses only: otherwise ZeroMQ would resolve names to IPv6 first, and a
// listener of "*" would listen on both.
void ZmqSocket::AllowIpv6(const std::string& name) {
  Set<int>(handles_->socket, ZMQ_IPV6, name.starts_with("tcp://[") ? 1 : 0);
}

int ZmqSocket::Bind(const std::string& name) {
  AllowIpv6(name);
  const auto bind = [&] { return zmq_bind(handles_->socket, name.c_str()); };
  return Uninterrupted(bind) == 0 ? 0 : zmq_errno();
}

Status ZmqSocket::BindTcp(const Endpoint& endpoint) {
  const std::string port = endpoint.address.substr(endpoint.address.rfind(':'));
  const auto hosts = ResolveAddresses(endpoint);
  if (!hosts.ok()) {
    return InvalidArgument("can't listen on tcp://{}: {}", endpoint.address,
                           hosts.status().message());
  }
  // Tries all addresses of the host; the error lists each with its reason.
  std::string tried;
  for (const std::string& host : *hosts) {
    const int error = Bind("tcp://" + host + port);
    if (error == 0) return Status::Ok();
    if (error == EADDRINUSE) {
      const pid_t holder = FindPortOwner(endpoint.port);
      return AlreadyExists(
          "tcp://{}: the port is in use by {}; stop it, or use port 0 for any free one",
          endpoint.address, holder == 0 ? "another process" : fmt::format("process {}", holder));
    }
    const std::string why =
        error == EADDRNOTAVAIL ? "not an address of this machine" : ErrorText(error);
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", host, why);
  }
  return InvalidArgument("can't listen on tcp://{} ({})", endpoint.address, tried);
}

int ZmqSocket::BindTo(int listening_fd, const std::string& name) {
  Set<int>(handles_->socket, ZMQ_USE_FD, listening_fd);
  return Bind(name);
}

std::string ZmqSocket::bound_name() const {
  char name[1024];
  std::size_t size = sizeof name;
  const auto get = [&] { return zmq_getsockopt(handles_->socket, ZMQ_LAST_ENDPOINT, name, &size); };
  TROOP_CHECK(Uninterrupted(get) == 0, "{}", zmq_strerror(zmq_errno()));
  return name;
}

void ZmqSocket::Unbind(const std::string& name) {
  const auto unbind = [&] { return zmq_unbind(handles_->socket, name.c_str()); };
  if (Uninterrupted(unbind) != 0 || handles_->monitor == nullptr) return;
  // Waits for the event that confirms the closed listener.
  const SystemClock clock;
  const Time end = clock.Now() + Milliseconds(500);
  for (int connection = -1; clock.Now() < end;) {
    zmq_pollitem_t item{handles_->monitor, 0, ZMQ_POLLIN, 0};
    zmq_poll(&item, 1, 10);
    while (const int event = handles_->ReadEvent(connection)) {
      if (event == ZMQ_EVENT_CLOSED) return;
    }
  }
}

int ZmqSocket::Connect(const std::string& name, std::span<const std::byte> routing_id) {
  Uninterrupted([&] {
    return zmq_setsockopt(handles_->socket, ZMQ_ROUTING_ID, routing_id.data(), routing_id.size());
  });
  AllowIpv6(name);
  const auto connect = [&] { return zmq_connect(handles_->socket, name.c_str()); };
  return Uninterrupted(connect) == 0 ? 0 : zmq_errno();
}

std::string ZmqSocket::ErrorText(int error) { return zmq_strerror(error); }

// Only sending the first frame can fail with a full queue; the others enter the same queue.
SendResult ZmqSocket::Send(std::span<const std::byte> route, const Envelope& envelope,
                           const Message& message, bool share) {
  void* const socket = handles_->socket;
  look_ = true;
  const auto refused = [] { return zmq_errno() == EAGAIN ? SendResult::kFull : SendResult::kGone; };
  const auto send = [&](const void* bytes, std::size_t size, int flags) {
    return Uninterrupted([&] { return zmq_send(socket, bytes, size, flags | ZMQ_DONTWAIT); });
  };
  if (!route.empty() && send(route.data(), route.size(), ZMQ_SNDMORE) < 0) return refused();
  auto big = std::count_if(message.parts.begin(), message.parts.end(),
                           [](const Buffer& part) { return IsBigPart(part.size()); });
  const std::size_t bytes = FirstFrameBytes(message);
  Frame first;
  TROOP_CHECK(zmq_msg_init_size(first.get(), bytes) == 0, "out of memory: {} bytes", bytes);
  EncodeFirstFrame(envelope, message, {static_cast<std::byte*>(zmq_msg_data(first.get())), bytes});
  if (!first.Send(socket, big > 0)) return refused();
  for (const Buffer& part : message.parts) {
    if (!IsBigPart(part.size())) continue;
    // A ticket instead of the bytes, if there is shared memory.
    if (const auto ticket = share ? SharedBufferPool::Get().Share(part) : std::nullopt) {
      const int more = --big > 0 ? ZMQ_SNDMORE : 0;
      if (send(&*ticket, sizeof *ticket, more) >= 0) continue;
      SharedBufferPool::Get().RevokeHandle(*ticket);
      return SendResult::kGone;
    }
    Frame frame;
    auto owner = std::make_unique<Buffer>(part);
    // Zero-copy: ReleaseBuffer drops the reference once ZeroMQ has sent the bytes.
    TROOP_HANDS_OVER(owner.get());
    zmq_msg_init_data(frame.get(), const_cast<std::byte*>(part.data()), part.size(), ReleaseBuffer,
                      owner.release());
    if (!frame.Send(socket, --big > 0))
      return SendResult::kGone;  // the connection ended between two frames
  }
  return SendResult::kSent;
}

// Decodes the message that starts with `first`, and always removes its other frames from the
// socket. Surplus frames are dropped one by one.
Status ZmqSocket::ReceiveRest(Handles& handles, const WireLimits& limits, ZmqMessage& out) {
  void* const socket = handles.socket;
  Frame& first = handles.first;
  const Result<WireHeader> header = CheckFirstFrame(first.bytes(), limits);
  std::vector<Buffer> big;
  out.bytes = first.bytes().size();
  std::size_t surplus = 0;
  Status unread;
  for (bool more = first.more(); more;) {
    auto frame = std::make_shared<Frame>();
    if (!frame->Receive(socket)) break;
    more = frame->more();
    if (header.ok() && big.size() < static_cast<std::size_t>(header->big_parts)) {
      const auto ticket = SharedBufferReader::ParseHandle(frame->bytes());
      if (ticket && handles.local) {
        Result<Buffer> part = handles.parts.Open(*ticket);
        if (!part.ok()) unread = part.status();
        big.push_back(part.ok() ? *std::move(part) : Buffer());
      } else {
        big.push_back(KeepFrame(std::move(frame)));
      }
      out.bytes += big.back().size();
    } else {
      ++surplus;
    }
  }
  if (!header.ok()) return header.status();
  if (surplus > 0) return DataLoss("{} surplus frames follow a message", surplus);
  out.envelope = header->envelope;
  TROOP_RETURN_IF_ERROR(unread);
  TROOP_ASSIGN_OR_RETURN(out.message, DecodeMessage(*header, first.bytes(), std::move(big)));
  return Status::Ok();
}

bool ZmqSocket::Receive(const WireLimits& limits, ZmqMessage& message) {
  void* const socket = handles_->socket;
  Frame& first = handles_->first;
  if ((handles_->kind == kServer && !handles_->sender.Receive(socket)) || !first.Receive(socket)) {
    first.Clear();
    return false;
  }
  message.status = ReceiveRest(*handles_, limits, message);
  return true;
}

std::span<const std::byte> ZmqSocket::sender() const { return handles_->sender.bytes(); }

// Parses the user id set by ZapHandler: "<role number> <name>".
Role ZmqSocket::key() const {
  const char* const user = zmq_msg_gets(handles_->first.get(), "User-Id");
  if (user == nullptr) return Role::kNone;
  int role = 0;
  std::from_chars(user, user + std::strlen(user), role);
  return Role(role);
}

int ZmqSocket::connection() const { return zmq_msg_get(handles_->first.get(), ZMQ_SRCFD); }

bool ZmqSocket::CanSend() const {
  return (GetInt(handles_->socket, ZMQ_EVENTS) & ZMQ_POLLOUT) != 0;
}

SocketEvent ZmqSocket::NextEvent() {
  SocketEvent event;
  if (handles_->monitor == nullptr) return event;
  while (const int kind = handles_->ReadEvent(event.connection)) {
    if (kind == ZMQ_EVENT_ACCEPTED) event.kind = SocketEvent::kAccepted;
    if (kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) event.kind = SocketEvent::kReady;
    if (kind == ZMQ_EVENT_DISCONNECTED) event.kind = SocketEvent::kEnded;
    if (kind == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL ||
        kind == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL || kind == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
      event.kind = SocketEvent::kRefused;
      event.refusal = RefusalOf(kind, std::exchange(event.connection, -1));
    }
    if (event.kind != SocketEvent::kNone) return event;
  }
  return {};
}

void ZmqSocket::AddPolls(std::vector<pollfd>& polls) const {
  if (handles_ == nullptr) return;
  polls.push_back({handles_->fd, POLLIN, 0});
  if (handles_->monitor != nullptr) polls.push_back({handles_->monitor_fd, POLLIN, 0});
}

void ZmqSocket::TakePolls(const pollfd*& results) {
  if (handles_ == nullptr) return;
  if ((results++)->revents != 0) look_ = true;
  if (handles_->monitor != nullptr && (results++)->revents != 0) look_events_ = true;
}

bool ZmqSocket::TakeReadable() { return is_open() && std::exchange(look_, false); }

bool ZmqSocket::TakeEventsPending() { return is_open() && std::exchange(look_events_, false); }

void ZmqSocket::ReadAgain() { look_ = true; }

bool ZmqSocket::Readable() {
  if (!is_open()) return false;
  if (look_ && (GetInt(handles_->socket, ZMQ_EVENTS) & ZMQ_POLLIN) == 0) look_ = false;
  return look_ || look_events_;
}

}  // namespace troop
