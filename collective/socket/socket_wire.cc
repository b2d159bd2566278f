// Implements a Wire over the two connections of each pair of ranks.
#include "collective/socket/socket_wire.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "collective/socket/handshake.h"

namespace troop {
namespace {

// Polls before a waiting rank sleeps.
constexpr int kLooks = 40;

// Data goes through non-blocking reads and writes; one epoll descriptor wakes Idle.
class SocketWire final : public Wire {
 public:
  SocketWire(std::string name, int rank, std::vector<Link> links, Socket epoll)
      : name_(std::move(name)), rank_(rank), epoll_(std::move(epoll)), peers_(links.size()) {
    for (std::size_t i = 0; i < links.size(); ++i) peers_[i].link = std::move(links[i]);
  }

  // The good-bye distinguishes an orderly exit from a death.
  ~SocketWire() override {
    const ControlBytes bytes = EncodeControl({.type = ControlWord::Type::kGoodbye});
    for (const Peer& peer : peers_) SendControl(peer, bytes);
  }

  // Registers all connections. Edge-triggered: after an event, a socket must be used until it would
  // block.
  Status Watch() {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (int(i) == rank_) continue;
      LimitBytesInFlight(peers_[i].link.data);
      epoll_event data{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.u64 = 2 * i}};
      epoll_event control{.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.u64 = 2 * i + 1}};
      if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, peers_[i].link.data.fd(), &data) != 0 ||
          epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, peers_[i].link.control.fd(), &control) != 0) {
        return Unavailable("{}: epoll: {}", name_, std::strerror(errno));
      }
    }
    return Status::Ok();
  }

  int rank() const override { return rank_; }
  int size() const override { return int(peers_.size()); }
  Time Now() const override { return clock_.Now(); }
  std::optional<Failure> failure() const override { return failure_; }
  bool said_goodbye(int peer) const override { return peers_[std::size_t(peer)].said_goodbye; }
  bool left(int peer) const override {
    const Peer& other = peers_[std::size_t(peer)];
    return other.said_goodbye && other.ended;
  }

  // Gathers header and payload into one system call.
  std::size_t Send(int peer, std::span<const std::byte> first,
                   std::span<const std::byte> second) override {
    iovec pieces[2] = {{const_cast<std::byte*>(first.data()), first.size()},
                       {const_cast<std::byte*>(second.data()), second.size()}};
    msghdr message{};
    message.msg_iov = pieces + (first.empty() ? 1 : 0);
    message.msg_iovlen = std::size_t(!first.empty()) + std::size_t(!second.empty());
    Peer& other = peers_[std::size_t(peer)];
    const ssize_t n = sendmsg(other.link.data.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) other.ended = true;
    return std::size_t(std::max<ssize_t>(n, 0));
  }

  // Scatters header and payload with one system call.
  std::size_t Receive(int peer, std::span<std::byte> first, std::span<std::byte> second) override {
    const iovec pieces[2] = {{first.data(), first.size()}, {second.data(), second.size()}};
    Peer& other = peers_[std::size_t(peer)];
    const ssize_t n = readv(other.link.data.fd(), pieces, 2);
    // The control connection reports the reason.
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) other.ended = true;
    return std::size_t(std::max<ssize_t>(n, 0));
  }

  // Polls a few times, then sleeps in epoll.
  void Idle(Time until) override {
    const Time now = Now();
    int wait_ms = 0;
    if (until > now) {
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
      wait_ms = int(std::min<std::int64_t>(wait, 60'000));
    }
    // Data in flight arrives within microseconds: yield to other processes first, because sleeping
    // and waking take longer.
    for (int look = 0; wait_ms > 0 && look < kLooks; ++look) {
      if (TakeEvents(0) > 0) return;
      sched_yield();
    }
    TakeEvents(wait_ms);
  }

  // Best effort to every peer.
  void Abort(const Failure& failure) override {
    const ControlBytes bytes = EncodeControl({.type = ControlWord::Type::kAbort,
                                              .code = failure.status.code(),
                                              .suspect = failure.suspect,
                                              .text = failure.status.message()});
    for (const Peer& peer : peers_) SendControl(peer, bytes);
  }

 private:
  // State of the connections to one rank.
  struct Peer {
    Link link;
    bool said_goodbye = false;
    bool ended = false;  // no more bytes arrive or can be sent
    ControlBytes control{};
    std::size_t control_bytes = 0;
  };

  // Waits for events and reads control messages. Data events only wake the caller.
  int TakeEvents(int wait_ms) {
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_.fd(), events.data(), int(events.size()), wait_ms);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t which = events[std::size_t(i)].data.u64;
      if (which % 2 == 1) ReadControl(int(which / 2));
    }
    return count;
  }

  // Best effort: a few messages fit into any socket buffer, and a peer that reads none is lost
  // anyway.
  static void SendControl(const Peer& peer, const ControlBytes& bytes) {
    if (!peer.link.control.open()) return;
    static_cast<void>(
        send(peer.link.control.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }

  // Reads control messages. A connection that closes without a good-bye means that the rank died.
  void ReadControl(int rank) {
    Peer& peer = peers_[std::size_t(rank)];
    while (!peer.said_goodbye && !failure_) {
      const ssize_t n = recv(peer.link.control.fd(), peer.control.data() + peer.control_bytes,
                             kControlBytes - peer.control_bytes, MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) {
        failure_ = {Unavailable("{}: rank {} has died: its connection closed without a good-bye",
                                name_, rank),
                    rank};
        return;
      }
      peer.control_bytes += std::size_t(n);
      if (peer.control_bytes < kControlBytes) continue;
      peer.control_bytes = 0;
      TakeControl(rank, &peer);
    }
  }

  // Only the first failure is kept.
  void TakeControl(int rank, Peer* peer) {
    const Result<ControlWord> word = DecodeControl(peer->control);
    if (!word.ok()) {
      failure_ = {DataLoss("{}: rank {}: {}", name_, rank, word.status().message()), rank};
    } else if (word->type == ControlWord::Type::kAbort) {
      const int suspect = word->suspect < size() ? word->suspect : -1;
      failure_ = {Status(word->code, word->text), std::max(suspect, -1)};
    } else if (word->type == ControlWord::Type::kGoodbye) {
      peer->said_goodbye = true;
    }
  }

  const std::string name_;
  const int rank_;
  const SystemClock clock_;
  const Socket epoll_;
  std::vector<Peer> peers_;
  std::optional<Failure> failure_;
};

}  // namespace

// The good-byes are sent by the destructor, also after a failed Watch.
Result<std::unique_ptr<Wire>> MakeSocketWire(std::string name, int rank, std::vector<Link> links) {
  Socket epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.open()) return Unavailable("{}: epoll: {}", name, std::strerror(errno));
  auto wire =
      std::make_unique<SocketWire>(std::move(name), rank, std::move(links), std::move(epoll));
  TROOP_RETURN_IF_ERROR(wire->Watch());
  return std::unique_ptr<Wire>(std::move(wire));
}

}  // namespace troop
