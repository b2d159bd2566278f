// A single-threaded HTTP server on poll(). Each connection passes the states reading, writing and
// closing; each state has a deadline.
#include "apps/monitor/http_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <list>
#include <utility>
#include <vector>

#include "net/security/private_file.h"
#include "net/transport/endpoint.h"
#include "net/transport/host_name.h"

namespace troop {
namespace {

constexpr std::size_t kTokenBytesMin = 16, kTokenBytesMax = 256;
// After a response, further input is read and discarded: closing with unread input sends a reset,
// which may discard the response at the client.
constexpr Duration kLinger = Seconds(1);
constexpr std::size_t kLingerBytes = 256 << 10;
// Pause of accept when descriptors are exhausted; until then poll() would return at once.
constexpr Duration kPause = Milliseconds(100);

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// Reuses the endpoint parser; a key suffix ("#…") is not part of an HTTP address.
Result<Endpoint> ParseAddress(std::string_view address) {
  const Result<Endpoint> endpoint = ParseEndpoint("tcp://" + std::string(address));
  if (endpoint.ok() && !endpoint->key) return endpoint;
  if (std::ranges::count(address, ':') > 1) {
    const std::size_t port = address.rfind(':');
    return InvalidArgument("\"{}\" is not HOST:PORT; put an IPv6 address in brackets: [{}]:{}",
                           address, address.substr(0, port), address.substr(port + 1));
  }
  return InvalidArgument(
      "\"{}\" is not HOST:PORT with a port of at most 65535, such as 127.0.0.1:9464", address);
}

// The host with the port that the socket is bound to.
std::string BoundAddress(int fd, std::string_view host) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  const std::uint16_t port = bound.ss_family == AF_INET6
                                 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                 : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  return fmt::format("{}:{}", host, ntohs(port));
}

// Opens a listening socket at one address of ResolveAddresses. `error`: errno, 0 on success.
Descriptor ListenAtAddress(std::string host, std::uint16_t port, int* error) {
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  const addrinfo hints{
      .ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  *error = EADDRNOTAVAIL;
  if (getaddrinfo(host == "*" ? "0.0.0.0" : host.c_str(), std::to_string(port).c_str(), &hints,
                  &found) != 0) {
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  Descriptor fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (fd.get() >= 0) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool listens = fd.get() >= 0 && bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                       listen(fd.get(), 128) == 0;
  *error = listens ? 0 : errno;
  return listens ? std::move(fd) : Descriptor();
}

// Opens a listening socket at the first address of the host that belongs to this machine.
// `endpoint`: from ParseAddress.
Result<Descriptor> ListenAt(const Endpoint& endpoint) {
  const auto hosts = ResolveAddresses(endpoint);
  if (!hosts.ok()) {
    return InvalidArgument("can't listen on {}: {}", endpoint.address, hosts.status().message());
  }
  std::string tried;
  for (const std::string& host : *hosts) {
    int error = 0;
    Descriptor fd = ListenAtAddress(host, endpoint.port, &error);
    if (error == 0) return fd;
    if (error == EADDRINUSE) {
      const pid_t holder = FindPortOwner(endpoint.port);
      return AlreadyExists("{}: the port is in use by {}; stop it, or use another port",
                           endpoint.address,
                           holder == 0 ? "another process" : fmt::format("process {}", holder));
    }
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", host, strerror(error));
  }
  return InvalidArgument("can't listen on {} ({})", endpoint.address, tried);
}

// Not inlined: GCC 12 reports a false overflow when a string of known length is moved.
[[gnu::noinline]] bool IsGoodToken(std::string_view token) {
  return token.size() >= kTokenBytesMin && token.size() <= kTokenBytesMax &&
         std::ranges::all_of(token, [](unsigned char c) { return std::isgraph(c) != 0; });
}

// A client's connection.
struct Connection {
  // In the order in which connections are closed to make room.
  enum class State : std::uint8_t { kClosing, kReading, kWriting };
  Descriptor fd;
  State state = State::kReading;
  Time deadline{};
  std::string in;
  std::string head;
  HttpResponse response;
  std::size_t sent = 0, total = 0;
  std::size_t dropped = 0;  // bytes received after the response
  bool over = false;
};

}  // namespace

// The state of the server's thread. Other threads use only the atomics: stop_ and the counters.
class HttpServer::Loop {
 public:
  Loop(Options options, std::string token, bool loopback, Descriptor listener, Descriptor wake)
      : options_(std::move(options)),
        token_(std::move(token)),
        by_name_alone_(loopback && token_.empty()),
        listener_(std::move(listener)),
        wake_(std::move(wake)) {}

  void Run() {
    while (!stop_.load(std::memory_order_acquire)) Turn();
  }
  // Called by the owner's thread: the eventfd interrupts poll().
  void Stop() {
    stop_.store(true, std::memory_order_release);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  }
  Counters counters() const { return {requests_.load(), refused_.load(), cut_off_.load()}; }

 private:
  using State = Connection::State;
  void Turn();
  void Accept(Time now);
  void MakeRoom();
  void Serve(Connection* c, Time now, short events);
  void Read(Connection* c, Time now);
  void Write(Connection* c, Time now);
  void Drop(Connection* c);
  void Respond(Connection* c, Time now);
  HttpResponse Answer(const HttpRequest& request);
  const Handler* FindRoute(const std::string& path) const;

  const Options options_;
  const std::string token_;
  const bool by_name_alone_;  // no token: only the Host check stops pages of foreign origins
  const Descriptor listener_, wake_;
  const SystemClock clock_;
  std::list<Connection> connections_;  // oldest first
  std::size_t answer_bytes_ = 0;
  Time accept_at_{};
  std::vector<pollfd> polled_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> requests_{0}, refused_{0}, cut_off_{0};
};

// Waits for events until the earliest deadline, serves ready connections, closes overdue ones, and
// accepts new ones last.
void HttpServer::Loop::Turn() {
  const Time now = clock_.Now();
  // An upper limit for poll(); any value would do without connections.
  Time until = now + Seconds(60);
  if (accept_at_ > now) until = accept_at_;
  polled_.clear();
  polled_.push_back({.fd = wake_.get(), .events = POLLIN});
  polled_.push_back({.fd = accept_at_ > now ? -1 : listener_.get(), .events = POLLIN});
  for (const Connection& c : connections_) {
    polled_.push_back(
        {.fd = c.fd.get(), .events = short(c.state == State::kWriting ? POLLOUT : POLLIN)});
    until = std::min(until, c.deadline);
  }
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - now);
  if (poll(polled_.data(), polled_.size(), int(std::max<std::int64_t>(0, wait.count()))) < 0) {
    return;  // a signal
  }
  const Time after = clock_.Now();
  std::size_t i = 2;
  // polled_ has the wake descriptor, the listener, then the connections in list order.
  for (Connection& c : connections_) {
    if (const short events = polled_[i++].revents; events != 0) Serve(&c, after, events);
    if (!c.over && after >= c.deadline) Drop(&c);
  }
  connections_.remove_if([](const Connection& c) { return c.over; });
  if (polled_[1].revents != 0) Accept(after);
}

// Closes a connection before its response was sent completely.
void HttpServer::Loop::Drop(Connection* c) {
  if (c->state != State::kClosing) ++cut_off_;
  if (c->state == State::kWriting) answer_bytes_ -= c->total;
  c->over = true;
}

// Closes the oldest connection of the least valuable state if all slots are in use.
void HttpServer::Loop::MakeRoom() {
  if (connections_.size() < std::size_t(options_.connections_max)) return;
  const auto first = std::ranges::min_element(connections_, {}, &Connection::state);  // the oldest
  Drop(&*first);
  connections_.erase(first);
}

// Accepts pending connections and reads at once, since most heads fit into one packet.
void HttpServer::Loop::Accept(Time now) {
  constexpr int kAtOnce = 16;  // per turn, so that existing connections are served too
  for (int i = 0; i < kAtOnce; ++i) {
    Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) {
      const bool busy = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (busy) accept_at_ = now + kPause;
      return;
    }
    MakeRoom();
    Connection& c = connections_.emplace_back();
    c.fd = std::move(fd);
    c.deadline = now + options_.request_deadline;
    Read(&c, now);
    if (c.over) connections_.pop_back();
  }
}

// While writing, an error or hangup ends the connection; otherwise the event means input.
void HttpServer::Loop::Serve(Connection* c, Time now, short events) {
  if (c->state == State::kWriting) {
    if ((events & (POLLERR | POLLHUP)) != 0) return Drop(c);
    return Write(c, now);
  }
  Read(c, now);
}

// Reads a part of the head, or discards input after the response.
void HttpServer::Loop::Read(Connection* c, Time now) {
  char bytes[4096];
  const ssize_t n = recv(c->fd.get(), bytes, sizeof bytes, 0);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (n <= 0) return Drop(c);
  if (c->state == State::kClosing) {
    c->dropped += std::size_t(n);
    if (c->dropped > kLingerBytes) Drop(c);
    return;
  }
  c->in.append(bytes, std::size_t(n));
  const bool whole = HttpHeadEnd(c->in) != std::string::npos;
  if (whole || c->in.size() > options_.limits.head_bytes) Respond(c, now);
}

// Parses the head, calls the handler, and starts to send the response. Over the memory limit for
// unsent responses the client gets 503.
void HttpServer::Loop::Respond(Connection* c, Time now) {
  const std::size_t end = HttpHeadEnd(c->in);
  const Result<HttpRequest> request =
      end == std::string::npos || end > options_.limits.head_bytes
          ? Result<HttpRequest>(
                ResourceExhausted("a head must have at most {} bytes", options_.limits.head_bytes))
          : ParseHttpRequest(std::string_view(c->in).substr(0, end), options_.limits);
  c->response = request.ok() ? Answer(*request) : HttpFailure(request.status());
  if (!request.ok()) ++refused_;
  // Frees the memory, which clear() would keep.
  std::string().swap(c->in);
  // A response to HEAD has the Content-Length of the body, but no body.
  const bool head_only = request.ok() && request->method == "HEAD";
  std::size_t body = head_only ? 0 : c->response.content().size();
  if (body > 0 && answer_bytes_ + body > options_.answer_bytes_max) {
    c->response = {.status = 503, .body = "too many unsent responses; retry later\n"};
    body = c->response.content().size();
  }
  c->head = HttpHead(c->response);
  c->total = c->head.size() + body;
  answer_bytes_ += c->total;
  c->state = State::kWriting;
  c->deadline = now + options_.response_deadline;
  Write(c, now);
}

// Sends as much as the socket takes; then shuts down the sending side and lingers.
void HttpServer::Loop::Write(Connection* c, Time now) {
  while (c->sent < c->total) {
    const std::size_t head = c->head.size();
    const std::string_view left =
        c->sent < head ? std::string_view(c->head).substr(c->sent)
                       : std::string_view(c->response.content()).substr(c->sent - head);
    const ssize_t n = send(c->fd.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Drop(c);
    c->sent += std::size_t(n);
  }
  answer_bytes_ -= c->total;
  c->response = {};
  // The client sees the end of the response and closes; until then input is discarded.
  shutdown(c->fd.get(), SHUT_WR);
  c->state = State::kClosing;
  c->deadline = now + kLinger;
}

// Checks in this order: Host, token or guard, method, route.
HttpResponse HttpServer::Loop::Answer(const HttpRequest& request) {
  const auto refuse = [this](HttpResponse response) {
    ++refused_;
    return response;
  };
  if (by_name_alone_ && IsForeignHost(request.Header("host"), options_.address)) {
    return refuse(
        {.status = 403, .body = "use an address, localhost, or the configured host name\n"});
  }
  if (!token_.empty() && options_.guard) {
    if (const auto instead = options_.guard(request, token_)) return refuse(*instead);
  } else if (!token_.empty() && !HasBearerToken(request, token_)) {
    return refuse({.status = 401,
                   .body = "a token is required: Authorization: Bearer TOKEN\n",
                   .headers = {{"WWW-Authenticate", "Bearer"}}});
  }
  const bool posts = options_.posts && request.method == "POST";
  if (request.method != "GET" && request.method != "HEAD" && !posts) {
    return refuse({.status = 405,
                   .body = "only GET and HEAD are supported\n",
                   .headers = {{"Allow", "GET, HEAD"}}});
  }
  const Handler* const handler = FindRoute(request.path);
  if (handler == nullptr) return refuse({.status = 404, .body = "not found\n"});
  ++requests_;
  return (*handler)(request);
}

// The route of the path itself, else of the nearest prefix that ends in "/".
const HttpServer::Handler* HttpServer::Loop::FindRoute(const std::string& path) const {
  const auto& routes = options_.routes;
  std::string prefix = path;
  for (;;) {
    if (const auto it = routes.find(prefix); it != routes.end()) return &it->second;
    // Each round removes one path component and keeps the slash before it.
    while (!prefix.empty() && prefix.back() == '/') prefix.pop_back();
    const std::size_t slash = prefix.rfind('/');
    if (slash == std::string::npos) return nullptr;
    prefix.resize(slash + 1);
  }
}

HttpServer::HttpServer(std::unique_ptr<Loop> loop, std::string address)
    : loop_(std::move(loop)), address_(std::move(address)) {
  // The server's thread blocks all signals, so that they are delivered to other threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([loop = loop_.get()] { loop->Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Repeats the check of CheckHttpAddress, so that no caller can skip it.
Result<std::unique_ptr<HttpServer>> HttpServer::Make(Options options) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseAddress(options.address));
  std::string token;
  if (!options.token_file.empty()) {
    TROOP_ASSIGN_OR_RETURN(token, ReadToken(options.token_file));
  }
  const bool loopback = IsLoopback(endpoint);
  if (!loopback && token.empty() && !options.insecure) {
    return InvalidArgument("{}: other machines can reach this address; a token is required",
                           options.address);
  }
  TROOP_ASSIGN_OR_RETURN(Descriptor listener, ListenAt(endpoint));
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return ResourceExhausted("eventfd failed: {}", strerror(errno));
  std::string address = BoundAddress(
      listener.get(), std::string_view(endpoint.address).substr(0, endpoint.address.rfind(':')));
  auto loop = std::make_unique<Loop>(std::move(options), std::move(token), loopback,
                                     std::move(listener), std::move(wake));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(loop), std::move(address)));
}

HttpServer::~HttpServer() { Stop(); }

// Blocks until the thread has finished its present turn. May be called twice.
void HttpServer::Stop() {
  if (!thread_.joinable()) return;
  loop_->Stop();
  thread_.join();
}

HttpServer::Counters HttpServer::counters() const { return loop_->counters(); }

// Shared by the config check and the commands, which pass different key names.
Status CheckHttpAddress(std::string_view address, bool token, bool insecure,
                        const HttpAddressKeys& keys) {
  const Result<Endpoint> endpoint = ParseAddress(address);
  if (!endpoint.ok()) return endpoint.status().WithContext(keys.address);
  if (token || insecure || IsLoopback(*endpoint)) return Status::Ok();
  return InvalidArgument(
      "{} is {:?}, which other machines can reach without a token; write at least 16 random "
      "characters to a file of mode 0600 (openssl rand -hex 32) and set {}, or listen on "
      "127.0.0.1, or pass --insecure",
      keys.address, address, keys.token);
}

// Refuses a file that its group or others can read (077), like the key files.
Result<std::string> ReadToken(const std::string& file) {
  TROOP_ASSIGN_OR_RETURN(std::string token, ReadPrivateFile(file, 077, "chmod 600", 4096));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  // A copy: GCC 12 warns about the moved string.
  if (IsGoodToken(token)) return std::string(token.data(), token.size());
  return InvalidArgument(
      "{} must hold one line of {} to {} visible characters (openssl rand -hex 32)", file,
      kTokenBytesMin, kTokenBytesMax);
}

}  // namespace troop
