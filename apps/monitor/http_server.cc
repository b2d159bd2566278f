// A single-threaded HTTP server on poll(). Each connection passes the states reading, waiting (for
// a deferred answer), writing, and idle or closing; each state has a deadline.
#include "apps/monitor/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
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
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apps/monitor/http_socket.h"
#include "net/security/private_file.h"

namespace troop {
namespace {

constexpr std::size_t kTokenBytesMin = 16, kTokenBytesMax = 256;
// After a response, further input is read and discarded: closing with unread input sends a reset,
// which may discard the response at the client.
constexpr Duration kLinger = Seconds(1);
constexpr std::size_t kLingerBytes = 256 << 10;
// Pause of accept when descriptors are exhausted; until then poll() would return at once.
constexpr Duration kPause = Milliseconds(100);
// Accepted connections per turn, so that existing ones are served too.
constexpr int kAcceptsAtOnce = 16;

// Not inlined: GCC 12 reports a false overflow when a string of known length is moved.
[[gnu::noinline]] bool IsGoodToken(std::string_view token) {
  return token.size() >= kTokenBytesMin && token.size() <= kTokenBytesMax &&
         std::ranges::all_of(token, [](unsigned char c) { return std::isgraph(c) != 0; });
}

// A client's connection.
struct Connection {
  // In the order in which connections are closed to make room.
  enum class State : std::uint8_t { kClosing, kIdle, kReading, kWriting, kWaiting };
  Descriptor fd;
  std::string peer;
  State state = State::kReading;
  Time deadline{};
  std::string in;                      // input that no request has taken yet
  std::optional<HttpRequest> request;  // its head is complete, its body is not
  bool keep = false;                   // reads further requests after the response
  bool head_only = false;              // the request was HEAD
  std::uint64_t waiting = 0;           // kWaiting: number of the request
  std::string head;
  HttpResponse response;
  std::size_t sent = 0, total = 0;
  std::size_t dropped = 0;  // bytes received after the response
  bool over = false;
};

}  // namespace

// The state of the server's thread. Other threads use only the atomics and the mailbox.
class HttpServer::Loop {
 public:
  Loop(Options options, std::string token, bool loopback, Descriptor listener, Descriptor wake)
      : options_(std::move(options)),
        token_(std::move(token)),
        by_name_alone_(loopback && token_.empty()),
        listener_(std::move(listener)),
        mailbox_(std::make_shared<HttpMailbox>(std::move(wake))) {}

  void Run() {
    while (!stop_.load(std::memory_order_acquire) && !Drained()) Turn();
  }
  // Called by the owner's thread: the eventfd interrupts poll().
  void Stop() {
    stop_.store(true, std::memory_order_release);
    mailbox_->Wake();
  }
  void Drain(Duration limit) {
    drain_until_.store((clock_.Now() + limit).time_since_epoch().count());
    mailbox_->Wake();
  }
  Counters counters() const {
    return {requests_.load(), refused_.load(), cut_off_.load(), overdue_.load()};
  }
  // REQUIRES: the thread has ended.
  std::size_t connections() const { return connections_.size(); }

 private:
  using State = Connection::State;
  void Turn();
  bool Drained() const;
  void BeginDrain(Time now);
  Time WaitUntil(Time now);
  void Accept(Time now);
  bool MakeRoom();
  void TakeAnswers(Time now);
  void Serve(Connection* c, Time now, short events);
  void Expire(Connection* c, Time now);
  void Read(Connection* c, Time now);
  void Advance(Connection* c, Time now);
  bool TakeRequest(Connection* c, Time now);
  bool TakeHead(Connection* c, Time now);
  void Write(Connection* c, Time now);
  void Drop(Connection* c);
  void Respond(Connection* c, HttpResponse response, Time now);
  std::unique_ptr<HttpResponse> Refusal(const HttpRequest& request) const;
  const Handler* FindRoute(const std::string& path) const;

  const Options options_;
  const std::string token_;
  const bool by_name_alone_;  // no token: only the Host check stops pages of foreign origins
  Descriptor listener_;       // closed while draining
  const std::shared_ptr<HttpMailbox> mailbox_;
  const SystemClock clock_;
  std::list<Connection> connections_;                       // oldest first
  std::unordered_map<std::uint64_t, Connection*> waiting_;  // by number of the request
  std::uint64_t last_request_ = 0;
  std::size_t answer_bytes_ = 0;
  Time accept_at_{};
  std::vector<pollfd> polled_;
  bool draining_ = false;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> drain_until_{0};  // ns of a Time; 0: not draining
  std::atomic<std::uint64_t> requests_{0}, refused_{0}, cut_off_{0}, overdue_{0};
};

// Fills polled_ and returns the earliest deadline.
Time HttpServer::Loop::WaitUntil(Time now) {
  // An upper limit for poll(); any value would do without connections.
  Time until = now + Seconds(60);
  if (accept_at_ > now) until = accept_at_;
  if (draining_) until = std::min(until, Time(Duration(drain_until_.load())));
  polled_.clear();
  polled_.push_back({.fd = mailbox_->descriptor(), .events = POLLIN});
  polled_.push_back({.fd = accept_at_ > now ? -1 : listener_.get(), .events = POLLIN});
  for (const Connection& c : connections_) {
    // A waiting connection is not read: its next request stays in the socket.
    const short events = c.state == State::kWriting   ? POLLOUT
                         : c.state == State::kWaiting ? 0
                                                      : POLLIN;
    polled_.push_back({.fd = c.fd.get(), .events = events});
    until = std::min(until, c.deadline);
  }
  return until;
}

// Waits for events until the earliest deadline, serves ready connections, closes overdue ones, and
// accepts new ones last.
void HttpServer::Loop::Turn() {
  const Time now = clock_.Now();
  if (!draining_ && drain_until_.load() != 0) BeginDrain(now);
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(WaitUntil(now) - now);
  if (poll(polled_.data(), polled_.size(), int(std::max<std::int64_t>(0, wait.count()))) < 0) {
    return;  // a signal
  }
  const Time after = clock_.Now();
  std::size_t i = 2;
  // polled_ has the wake descriptor, the listener, then the connections in list order.
  for (Connection& c : connections_) {
    if (const short events = polled_[i++].revents; events != 0) Serve(&c, after, events);
  }
  // Answers come before deadlines: one that is there in time is sent.
  if (polled_[0].revents != 0) TakeAnswers(after);
  for (Connection& c : connections_) {
    if (!c.over && after >= c.deadline) Expire(&c, after);
  }
  connections_.remove_if([](const Connection& c) { return c.over; });
  if (polled_[1].revents != 0) Accept(after);
}

// True if nothing is left to answer, or the limit has passed.
bool HttpServer::Loop::Drained() const {
  return draining_ &&
         (connections_.empty() || clock_.Now().time_since_epoch().count() >= drain_until_.load());
}

// Accepts what the kernel has accepted already, since closing the listener would reset it.
void HttpServer::Loop::BeginDrain(Time now) {
  draining_ = true;
  // Bounded: clients that connect all the time must neither delay the drain nor take the places of
  // others.
  for (int turn = 0; turn < kHttpBacklog / kAcceptsAtOnce; ++turn) {
    const std::size_t before = connections_.size();
    if (before + kAcceptsAtOnce > std::size_t(options_.connections_max)) break;
    Accept(now);
    if (connections_.size() == before) break;
  }
  listener_.Close();
  for (Connection& c : connections_) {
    const bool empty = c.state == State::kReading && c.in.empty() && !c.request;
    if (c.state == State::kIdle || empty)
      c.deadline = std::min(c.deadline, now + options_.drain_grace);
  }
}

// Closes a connection before its response was sent completely; an idle one has sent its responses.
void HttpServer::Loop::Drop(Connection* c) {
  if (c->state != State::kClosing && c->state != State::kIdle) ++cut_off_;
  if (c->state == State::kWriting) answer_bytes_ -= c->total;
  if (c->state == State::kWaiting) waiting_.erase(c->waiting);
  c->over = true;
}

// The deadline of a state has passed. Only a request that waits for its answer gets a response.
void HttpServer::Loop::Expire(Connection* c, Time now) {
  if (c->state != State::kWaiting) return Drop(c);
  ++overdue_;
  waiting_.erase(c->waiting);
  Respond(c, {.status = 504, .body = "the request's deadline has passed; retry later\n"}, now);
  Advance(c, now);
}

// Closes the oldest connection of the least valuable state if all slots are in use. False: all of
// them await answers.
bool HttpServer::Loop::MakeRoom() {
  if (connections_.size() < std::size_t(options_.connections_max)) return true;
  const auto first = std::ranges::min_element(connections_, {}, &Connection::state);  // the oldest
  if (first->state == State::kWaiting) return false;
  Drop(&*first);
  connections_.erase(first);
  return true;
}

// Accepts pending connections and reads at once, since most heads fit into one packet.
void HttpServer::Loop::Accept(Time now) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) {
      const bool busy = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (busy) accept_at_ = now + kPause;
      return;
    }
    const int on = 1;  // responses are sent whole
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const bool room = MakeRoom();
    Connection& c = connections_.emplace_back();
    c.fd = std::move(fd);
    c.peer = PeerAddress(c.fd.get());
    c.deadline = now + options_.request_deadline;
    if (room) {
      Read(&c, now);
    } else {
      ++refused_;
      Respond(&c,
              {.status = 503,
               .body = "all connections are in use; retry later\n",
               .headers = {{"Retry-After", "1"}}},
              now);
    }
    if (c.over) connections_.pop_back();
  }
}

// Sends the answers that other threads have given. A request that is over has no connection.
void HttpServer::Loop::TakeAnswers(Time now) {
  for (auto& [request, response] : mailbox_->Take()) {
    const auto it = waiting_.find(request);
    if (it == waiting_.end()) continue;
    Connection* const c = it->second;
    waiting_.erase(it);
    Respond(c, std::move(response), now);
    Advance(c, now);
  }
}

// While waiting or writing, an error or hangup ends the connection; else the event means input.
void HttpServer::Loop::Serve(Connection* c, Time now, short events) {
  if (c->state == State::kWriting || c->state == State::kWaiting) {
    if ((events & (POLLERR | POLLHUP)) != 0) return Drop(c);
    Write(c, now);
    return Advance(c, now);
  }
  Read(c, now);
}

// Reads a part of a request, or discards input after the response.
void HttpServer::Loop::Read(Connection* c, Time now) {
  char bytes[16384];
  const ssize_t n = recv(c->fd.get(), bytes, sizeof bytes, 0);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (n <= 0) return Drop(c);
  if (c->state == State::kClosing) {
    c->dropped += std::size_t(n);
    if (c->dropped > kLingerBytes) Drop(c);
    return;
  }
  if (c->state == State::kIdle) {
    c->state = State::kReading;
    c->deadline = now + options_.request_deadline;
  }
  c->in.append(bytes, std::size_t(n));
  Advance(c, now);
}

// Takes requests from the input until one is incomplete, awaits its answer, or is still being sent.
void HttpServer::Loop::Advance(Connection* c, Time now) {
  while (!c->over && c->state == State::kReading && TakeRequest(c, now)) {
  }
  // Between requests: an empty input has no deadline of a request.
  if (!c->over && c->state == State::kReading && c->sent > 0 && c->in.empty() && !c->request) {
    c->sent = 0;
    c->state = State::kIdle;
    c->deadline = now + (draining_ ? options_.drain_grace : options_.idle_deadline);
  }
}

// Parses a complete head, and answers requests that are refused before their body is read. True:
// the input has a further step.
bool HttpServer::Loop::TakeHead(Connection* c, Time now) {
  const std::size_t end = HttpHeadEnd(c->in);
  if (end == std::string::npos && c->in.size() <= options_.limits.head_bytes) return false;
  const Result<HttpRequest> request =
      end == std::string::npos || end > options_.limits.head_bytes
          ? Result<HttpRequest>(
                ResourceExhausted("a head must have at most {} bytes", options_.limits.head_bytes))
          : ParseHttpRequest(std::string_view(c->in).substr(0, end), options_.limits);
  c->head_only = request.ok() && request->method == "HEAD";
  const std::unique_ptr<HttpResponse> refusal =
      request.ok() ? Refusal(*request)
                   : std::make_unique<HttpResponse>(HttpFailure(request.status()));
  if (refusal) {
    // The bytes that follow are a body, or no request at all: they are not read.
    ++refused_;
    c->keep = false;
    std::string().swap(c->in);
    Respond(c, std::move(*refusal), now);
    return true;
  }
  // The bytes after the head are the begin of the body, or of the next request.
  c->in.erase(0, end);
  c->request = *request;
  c->keep = options_.keep_alive && request->keep_alive;
  const bool expects = c->request->Header("expect") == "100-continue";
  if (expects && c->in.size() < c->request->body_bytes) {
    // A client that does not get this line sends its body after a moment anyway.
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    [[maybe_unused]] const ssize_t n =
        send(c->fd.get(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
  }
  return true;
}

// Makes one step from the input: a head, or a body and the call of the handler. False: incomplete.
bool HttpServer::Loop::TakeRequest(Connection* c, Time now) {
  if (!c->request) return TakeHead(c, now);
  if (c->in.size() < c->request->body_bytes) return false;
  HttpRequest request = *std::exchange(c->request, std::nullopt);
  request.peer = c->peer;
  request.body = c->in.substr(0, request.body_bytes);
  c->in.erase(0, request.body_bytes);
  if (c->in.empty()) c->in.shrink_to_fit();  // a body's memory
  // A deferred handler may answer before it returns; the answer then is in the mailbox.
  ++requests_;
  if (const auto it = options_.deferred.find(request.path); it != options_.deferred.end()) {
    c->state = State::kWaiting;
    c->deadline = now + options_.answer_deadline;
    c->waiting = ++last_request_;
    waiting_[c->waiting] = c;
    it->second(std::move(request), HttpReply(mailbox_, c->waiting));
  } else {
    Respond(c, (*FindRoute(request.path))(request), now);
  }
  return true;
}

// Starts to send a response. Over the memory limit for unsent responses the client gets 503.
void HttpServer::Loop::Respond(Connection* c, HttpResponse response, Time now) {
  c->response = std::move(response);
  // Clients learn of the drain by the header of their response.
  c->keep = c->keep && !draining_;
  // A response to HEAD has the Content-Length of the body, but no body.
  std::size_t body = c->head_only ? 0 : c->response.content().size();
  if (body > 0 && answer_bytes_ + body > options_.answer_bytes_max) {
    c->response = {.status = 503, .body = "too many unsent responses; retry later\n"};
    body = c->response.content().size();
  }
  c->head = HttpHead(c->response, c->keep);
  c->sent = 0;
  c->total = c->head.size() + body;
  answer_bytes_ += c->total;
  c->state = State::kWriting;
  c->deadline = now + options_.response_deadline;
  Write(c, now);
}

// Sends as much as the socket takes. Then the connection reads its next request, or shuts down the
// sending side and lingers.
void HttpServer::Loop::Write(Connection* c, Time now) {
  if (c->state != State::kWriting) return;
  while (c->sent < c->total) {
    const std::size_t head = c->head.size();
    const std::string_view left =
        c->sent < head
            ? std::string_view(c->head).substr(c->sent)
            : std::string_view(c->response.content()).substr(c->sent - head, c->total - c->sent);
    // Head and body leave in one packet if they fit.
    const int more = c->sent < head && c->total > head ? MSG_MORE : 0;
    const ssize_t n = send(c->fd.get(), left.data(), left.size(), MSG_NOSIGNAL | more);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Drop(c);
    c->sent += std::size_t(n);
  }
  answer_bytes_ -= c->total;
  c->response = {};
  // Advance takes a pipelined request, or makes the connection idle.
  if (c->keep) {
    c->state = State::kReading;
    c->deadline = now + options_.request_deadline;
    return;
  }
  // The client sees the end of the response and closes; until then input is discarded.
  shutdown(c->fd.get(), SHUT_WR);
  c->state = State::kClosing;
  c->deadline = now + kLinger;
}

// Checks in this order: Host, token or guard, method, route. Null: the request has a handler.
std::unique_ptr<HttpResponse> HttpServer::Loop::Refusal(const HttpRequest& request) const {
  const auto refuse = [](HttpResponse response) {
    return std::make_unique<HttpResponse>(std::move(response));
  };
  if (by_name_alone_ && IsForeignHost(request.Header("host"), options_.address)) {
    return refuse(
        {.status = 403, .body = "use an address, localhost, or the configured host name\n"});
  }
  const bool open = token_.empty() || options_.public_paths.contains(request.path);
  if (!open && options_.guard) {
    if (auto instead = options_.guard(request, token_)) return instead;
  } else if (!open && !HasBearerToken(request, token_)) {
    return refuse({.status = 401,
                   .body = "a token is required: Authorization: Bearer TOKEN\n",
                   .headers = {{"WWW-Authenticate", "Bearer"}}});
  }
  // Deferred routes are exact, all others match by prefix.
  if (options_.deferred.contains(request.path)) {
    if (request.method == "POST") return nullptr;
    return refuse(
        {.status = 405, .body = "only POST is supported\n", .headers = {{"Allow", "POST"}}});
  }
  const bool posts = options_.posts && request.method == "POST";
  if (request.method != "GET" && request.method != "HEAD" && !posts) {
    return refuse({.status = 405,
                   .body = "only GET and HEAD are supported\n",
                   .headers = {{"Allow", "GET, HEAD"}}});
  }
  if (FindRoute(request.path) == nullptr) return refuse({.status = 404, .body = "not found\n"});
  return nullptr;
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
  TROOP_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseHttpAddress(options.address));
  std::string token;
  if (!options.token_file.empty()) {
    TROOP_ASSIGN_OR_RETURN(token, ReadToken(options.token_file));
  }
  const bool loopback = IsLoopback(endpoint);
  if (!loopback && token.empty() && !options.insecure) {
    return InvalidArgument("{}: other machines can reach this address; a token is required",
                           options.address);
  }
  TROOP_ASSIGN_OR_RETURN(Descriptor listener, ListenForHttp(endpoint));
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

// The thread ends by itself once everything is answered, or at the limit.
std::size_t HttpServer::Drain(Duration limit) {
  if (!thread_.joinable()) return 0;
  loop_->Drain(limit);
  thread_.join();
  return loop_->connections();
}

HttpServer::Counters HttpServer::counters() const { return loop_->counters(); }

// Shared by the config check and the commands, which pass different key names.
Status CheckHttpAddress(std::string_view address, bool token, bool insecure,
                        const HttpAddressKeys& keys) {
  const Result<Endpoint> endpoint = ParseHttpAddress(address);
  if (!endpoint.ok()) return endpoint.status().WithContext(keys.address);
  if (token || insecure || IsLoopback(*endpoint)) return Status::Ok();
  return InvalidArgument(
      "{} is {:?}, which other machines can reach without a token; write at least 16 random "
      "characters to a file of mode 0600 (openssl rand -hex 32) and set {}, or listen on "
      "127.0.0.1{}",
      keys.address, address, keys.token, keys.offers_insecure ? ", or pass --insecure" : "");
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
