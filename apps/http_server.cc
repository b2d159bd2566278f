#include "apps/http_server.h"

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

#include "net/endpoint.h"
#include "net/host_name.h"
#include "net/own_file.h"

namespace troop {
namespace {

constexpr std::size_t kTokenBytesMin = 16, kTokenBytesMax = 256;
// After an answer: what a client still sends is read and dropped, since closing over it would take
// the answer away from it.
constexpr Duration kLinger = Seconds(1);
constexpr std::size_t kLingerBytes = 256 << 10;
// After a failed accept: out of descriptors, which a wait alone mends.
constexpr Duration kPause = Milliseconds(100);

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

Result<Endpoint> ParseAddress(std::string_view address) {
  const Result<Endpoint> endpoint = ParseEndpoint("tcp://" + std::string(address));
  if (endpoint.ok() && !endpoint->key) return endpoint;
  if (std::ranges::count(address, ':') > 1) {
    const std::size_t port = address.rfind(':');
    return InvalidArgument("\"{}\" is no HOST:PORT; an IPv6 address stands in brackets: [{}]:{}",
                           address, address.substr(0, port), address.substr(port + 1));
  }
  return InvalidArgument("\"{}\" is no HOST:PORT, such as 127.0.0.1:9464", address);
}

std::string BoundAddress(int fd, std::string_view host) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  const std::uint16_t port = bound.ss_family == AF_INET6
                                 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                 : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  return fmt::format("{}:{}", host, ntohs(port));
}

// Bound and listening at one address, as AddressesOf spells it. The error is an errno.
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

// Bound and listening at the first address of the host that is one of this machine. `endpoint`: as
// ParseAddress gives it.
Result<Descriptor> ListenAt(const Endpoint& endpoint) {
  const auto hosts = AddressesOf(endpoint);
  if (!hosts.ok()) {
    return InvalidArgument("can't listen on {}: {}", endpoint.address, hosts.status().message());
  }
  std::string tried;
  for (const std::string& host : *hosts) {
    int error = 0;
    Descriptor fd = ListenAtAddress(host, endpoint.port, &error);
    if (error == 0) return fd;
    if (error == EADDRINUSE) {
      const pid_t holder = HolderOfPort(endpoint.port);
      return AlreadyExists("{}: the port is in use by {}; stop it, or use another port",
                           endpoint.address,
                           holder == 0 ? "another process" : fmt::format("process {}", holder));
    }
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", host, strerror(error));
  }
  return InvalidArgument("can't listen on {} ({})", endpoint.address, tried);
}

// Not inlined: GCC 12 takes a string of known length for one that overflows where it is moved.
[[gnu::noinline]] bool IsGoodToken(std::string_view token) {
  return token.size() >= kTokenBytesMin && token.size() <= kTokenBytesMax &&
         std::ranges::all_of(token, [](unsigned char c) { return std::isgraph(c) != 0; });
}

struct Connection {
  enum class State : std::uint8_t { kClosing, kReading, kWriting };  // who is cut off first
  Descriptor fd;
  State state = State::kReading;
  Time deadline{};
  std::string in;
  std::string head;
  HttpResponse response;
  std::size_t sent = 0, total = 0;
  std::size_t dropped = 0;  // that came after the answer
  bool over = false;
};

}  // namespace

// What the thread owns; all of it but the counters is its alone once it runs.
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
  const bool by_name_alone_;  // nothing but the machine's border keeps a browser's pages out
  const Descriptor listener_, wake_;
  const SystemClock clock_;
  std::list<Connection> connections_;  // oldest first
  std::size_t answer_bytes_ = 0;
  Time accept_at_{};
  std::vector<pollfd> polled_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> requests_{0}, refused_{0}, cut_off_{0};
};

void HttpServer::Loop::Turn() {
  const Time now = clock_.Now();
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
  for (Connection& c : connections_) {
    if (const short events = polled_[i++].revents; events != 0) Serve(&c, after, events);
    if (!c.over && after >= c.deadline) Drop(&c);
  }
  connections_.remove_if([](const Connection& c) { return c.over; });
  if (polled_[1].revents != 0) Accept(after);
}

// Ends a connection whose answer has not gone out.
void HttpServer::Loop::Drop(Connection* c) {
  if (c->state != State::kClosing) ++cut_off_;
  if (c->state == State::kWriting) answer_bytes_ -= c->total;
  c->over = true;
}

void HttpServer::Loop::MakeRoom() {
  if (connections_.size() < std::size_t(options_.connections_max)) return;
  const auto first = std::ranges::min_element(connections_, {}, &Connection::state);  // the oldest
  Drop(&*first);
  connections_.erase(first);
}

void HttpServer::Loop::Accept(Time now) {
  constexpr int kAtOnce = 16;  // those who are here have their turn as well
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

void HttpServer::Loop::Serve(Connection* c, Time now, short events) {
  if (c->state == State::kWriting) {
    if ((events & (POLLERR | POLLHUP)) != 0) return Drop(c);
    return Write(c, now);
  }
  Read(c, now);
}

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

void HttpServer::Loop::Respond(Connection* c, Time now) {
  const std::size_t end = HttpHeadEnd(c->in);
  const Result<HttpRequest> request =
      end == std::string::npos || end > options_.limits.head_bytes
          ? Result<HttpRequest>(
                ResourceExhausted("a head has at most {} bytes", options_.limits.head_bytes))
          : ParseHttpRequest(std::string_view(c->in).substr(0, end), options_.limits);
  c->response = request.ok() ? Answer(*request) : HttpFailure(request.status());
  if (!request.ok()) ++refused_;
  std::string().swap(c->in);
  const bool head_only = request.ok() && request->method == "HEAD";
  std::size_t body = head_only ? 0 : c->response.content().size();
  if (body > 0 && answer_bytes_ + body > options_.answer_bytes_max) {
    c->response = {.status = 503, .body = "too many answers wait to be taken; ask again\n"};
    body = c->response.content().size();
  }
  c->head = HttpHead(c->response);
  c->total = c->head.size() + body;
  answer_bytes_ += c->total;
  c->state = State::kWriting;
  c->deadline = now + options_.response_deadline;
  Write(c, now);
}

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
  shutdown(c->fd.get(), SHUT_WR);
  c->state = State::kClosing;
  c->deadline = now + kLinger;
}

HttpResponse HttpServer::Loop::Answer(const HttpRequest& request) {
  const auto refuse = [this](HttpResponse response) {
    ++refused_;
    return response;
  };
  if (by_name_alone_ && IsForeignHost(request.Header("host"), options_.address)) {
    return refuse({.status = 403,
                   .body = "ask by address, as localhost, or by the name that is listened on\n"});
  }
  if (!token_.empty() && options_.guard) {
    if (const auto instead = options_.guard(request, token_)) return refuse(*instead);
  } else if (!token_.empty() && !HasBearerToken(request, token_)) {
    return refuse({.status = 401,
                   .body = "a token is asked for: Authorization: Bearer TOKEN\n",
                   .headers = {{"WWW-Authenticate", "Bearer"}}});
  }
  const bool posts = options_.posts && request.method == "POST";
  if (request.method != "GET" && request.method != "HEAD" && !posts) {
    return refuse({.status = 405,
                   .body = "GET and HEAD are answered\n",
                   .headers = {{"Allow", "GET, HEAD"}}});
  }
  const Handler* const handler = FindRoute(request.path);
  if (handler == nullptr) return refuse({.status = 404, .body = "nothing is here\n"});
  ++requests_;
  return (*handler)(request);
}

const HttpServer::Handler* HttpServer::Loop::FindRoute(const std::string& path) const {
  const auto& routes = options_.routes;
  std::string prefix = path;
  for (;;) {
    if (const auto it = routes.find(prefix); it != routes.end()) return &it->second;
    while (!prefix.empty() && prefix.back() == '/') prefix.pop_back();
    const std::size_t slash = prefix.rfind('/');
    if (slash == std::string::npos) return nullptr;
    prefix.resize(slash + 1);
  }
}

HttpServer::HttpServer(std::unique_ptr<Loop> loop, std::string address)
    : loop_(std::move(loop)), address_(std::move(address)) {
  // Signals are the business of the process's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([loop = loop_.get()] { loop->Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Result<std::unique_ptr<HttpServer>> HttpServer::Make(Options options) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseAddress(options.address));
  std::string token;
  if (!options.token_file.empty()) {
    TROOP_ASSIGN_OR_RETURN(token, ReadToken(options.token_file));
  }
  const bool loopback = IsLoopback(endpoint);
  if (!loopback && token.empty() && !options.insecure) {
    return InvalidArgument("{}: other machines reach this address, which takes a token",
                           options.address);
  }
  TROOP_ASSIGN_OR_RETURN(Descriptor listener, ListenAt(endpoint));
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return ResourceExhausted("no eventfd: {}", strerror(errno));
  std::string address = BoundAddress(
      listener.get(), std::string_view(endpoint.address).substr(0, endpoint.address.rfind(':')));
  auto loop = std::make_unique<Loop>(std::move(options), std::move(token), loopback,
                                     std::move(listener), std::move(wake));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(loop), std::move(address)));
}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Stop() {
  if (!thread_.joinable()) return;
  loop_->Stop();
  thread_.join();
}

HttpServer::Counters HttpServer::counters() const { return loop_->counters(); }

Status CheckHttpAddress(std::string_view address, bool token, bool insecure,
                        const HttpAddressKeys& keys) {
  const Result<Endpoint> endpoint = ParseAddress(address);
  if (!endpoint.ok()) return endpoint.status().WithContext(keys.address);
  if (token || insecure || IsLoopback(*endpoint)) return Status::Ok();
  return InvalidArgument(
      "{} = {:?}: other machines reach this address, so it wants a token: write 16 or more "
      "characters that nobody guesses into a file of mode 0600 (openssl rand -hex 32) and set {}, "
      "or listen on 127.0.0.1; --insecure listens all the same",
      keys.address, address, keys.token);
}

Result<std::string> ReadToken(const std::string& file) {
  TROOP_ASSIGN_OR_RETURN(std::string token, ReadOwnFile(file, 077, "chmod 600", 4096));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  // GCC 12 warns of a moved one.
  if (IsGoodToken(token)) return std::string(token.data(), token.size());
  return InvalidArgument(
      "{} holds no token: one line of {} to {} visible characters (openssl rand -hex 32)", file,
      kTokenBytesMin, kTokenBytesMax);
}

}  // namespace troop
