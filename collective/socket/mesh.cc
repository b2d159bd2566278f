// Implements the connection of all pairs of ranks, with two connections per pair: data and control.
#include "collective/socket/mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>

#include "collective/socket/handshake.h"
#include "core/base/log.h"

namespace troop {
namespace {

// Limits for accepted connections without a hello: their age, and their number.
constexpr Duration kHelloPatience = Seconds(2);
constexpr std::size_t kStrangersMax = 64;

Time Now() { return SystemClock().Now(); }

// Drives all handshakes of one rank from a single poll loop until every link is established.
class MeshMaker {
 public:
  MeshMaker(const GroupOptions& options, std::span<const Member> members, Socket listener)
      : options_(options),
        members_(members),
        listener_(std::move(listener)),
        links_(members.size()),
        // Two links with each other rank: one for data, one for control.
        missing_(2 * (members.size() - 1)) {}

  // Lower ranks are connected to; higher ranks connect to this one.
  Result<std::vector<Link>> Make(Time deadline) {
    for (int peer = 0; peer < options_.rank; ++peer) {
      TROOP_RETURN_IF_ERROR(Connect(peer, Hello::Lane::kData));
      TROOP_RETURN_IF_ERROR(Connect(peer, Hello::Lane::kControl));
    }
    while (missing_ > 0) {
      const Time now = Now();
      if (now >= deadline) return Late();
      // Wakes up at least every kHelloPatience, to drop silent connections.
      PollOnce(std::min(deadline, now + kHelloPatience));
      TROOP_RETURN_IF_ERROR(error_);
    }
    return std::move(links_);
  }

 private:
  // A connection in its handshake.
  struct Half {
    Socket socket;
    int peer = -1;  // -1: accepted, and its hello is missing
    Hello::Lane lane = Hello::Lane::kData;
    bool connecting = false;
    Time until = kForever;
    HelloBytes out{};  // our hello
    std::array<std::byte, kHelloBytes + kProofBytes> in{};
    std::size_t sent = kHelloBytes, got = 0;  // sent == kHelloBytes: nothing to send
    Hello theirs;
    bool greeted = false;  // their hello was accepted, their proof is expected
    bool over = false;
    HelloBytes TheirHello() const {
      HelloBytes hello;
      std::ranges::copy_n(in.begin(), kHelloBytes, hello.begin());
      return hello;
    }
  };

  // This rank's hello, with a new nonce per connection.
  Hello Ours(Hello::Lane lane) const {
    return {.group = options_.group,
            .epoch = options_.epoch,
            .token = options_.token,
            .rank = options_.rank,
            .size = options_.size,
            .lane = lane,
            .secret = options_.secret.has_value(),
            // Without a secret there is no proof, for which the nonce would be needed.
            .nonce = options_.secret ? MakeNonce() : std::array<std::byte, 16>{}};
  }
  std::string Name(int peer) const {
    return fmt::format("group {:?}: rank {} at {}", options_.group, peer,
                       members_[std::size_t(peer)].address);
  }
  Socket& LinkOf(int peer, Hello::Lane lane) {
    Link& link = links_[std::size_t(peer)];
    return lane == Hello::Lane::kData ? link.data : link.control;
  }

  // Begins a handshake with another rank.
  Status Connect(int peer, Hello::Lane lane) {
    auto socket = BeginConnect(members_[std::size_t(peer)].address);
    if (!socket.ok()) return socket.status().WithContext(Name(peer));
    // The connection is established by the poll loop, where an error shows as well.
    halves_.push_back({.socket = std::move(*socket),
                       .peer = peer,
                       .lane = lane,
                       .connecting = true,
                       .out = EncodeHello(Ours(lane)),
                       .sent = 0});
    return Status::Ok();
  }

  // The timeout error, which lists the missing ranks.
  Status Late() const {
    std::string absent;
    for (int peer = 0; peer < options_.size; ++peer) {
      const Link& link = links_[std::size_t(peer)];
      if (peer != options_.rank && !(link.data.open() && link.control.open())) {
        absent += fmt::format("{}{}", absent.empty() ? "" : ", ", peer);
      }
    }
    return DeadlineExceeded(
        "group {:?} epoch {}: rank {} waited {} s for rank {}; check that it runs "
        "and is reachable",
        options_.group, options_.epoch, options_.rank, ToSeconds(options_.connect_timeout), absent);
  }

  // One poll over the listener, the handshakes, and the control connections of finished links,
  // which show a rank's exit.
  void PollOnce(Time until) {
    std::vector<pollfd> polled{{listener_.fd(), POLLIN, 0}};
    for (const Half& half : halves_) {
      const bool out = half.connecting || half.sent < kHelloBytes;
      polled.push_back({half.socket.fd(), short(out ? POLLOUT : POLLIN), 0});
    }
    for (const Link& link : links_) {
      if (link.control.open()) polled.push_back({link.control.fd(), POLLRDHUP, 0});
    }
    // Rounded up: a wait of 0 ms would turn the last millisecond into a busy loop.
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - Now()).count();
    poll(polled.data(), polled.size(), int(std::clamp<std::int64_t>(wait, 0, 1000)));
    std::size_t i = 1;
    const Time now = Now();
    for (Half& half : halves_) {
      // Move may only mark a half as over: the list and `polled` must keep the same order.
      if (polled[i++].revents != 0) Move(&half);
      half.over |= half.until <= now;
    }
    for (; i < polled.size(); ++i) {
      if (polled[i].revents != 0 && error_.ok()) NoteGone(polled[i].fd);
    }
    halves_.remove_if([](const Half& half) { return half.over; });
    // Last, because new halves have no entry in `polled`.
    if (polled[0].revents != 0) AcceptAll();
  }

  // A finished link was lost: its rank exited.
  void NoteGone(int fd) {
    for (int peer = 0; peer < options_.size; ++peer) {
      if (links_[std::size_t(peer)].control.fd() != fd) continue;
      error_ = Unavailable("{} exited during the rendezvous", Name(peer));
    }
  }

  // Accepts waiting connections. Beyond the limit, the oldest one without a hello is dropped.
  void AcceptAll() {
    for (auto socket = AcceptFrom(listener_); socket.ok(); socket = AcceptFrom(listener_)) {
      const auto stranger = [](const Half& half) { return half.peer < 0; };
      // The limit includes room for the two connections of each rank.
      const std::size_t bound = kStrangersMax + 2 * members_.size();
      if (std::size_t(std::ranges::count_if(halves_, stranger)) >= bound) {
        // The oldest is the least likely to be honest: a hello follows its connection at once.
        halves_.erase(std::ranges::find_if(halves_, stranger));
      }
      halves_.push_back({.socket = std::move(*socket), .until = Now() + kHelloPatience});
    }
  }

  // Advances one handshake: connect, send the hello, receive the hello, receive the proof.
  void Move(Half* half) {
    if (half->connecting) {
      if (const Status status = ConnectError(half->socket); !status.ok()) {
        error_ = status.WithContext(Name(half->peer));
        return;
      }
      half->connecting = false;
    }
    if (half->sent < kHelloBytes) {
      const ssize_t n = send(half->socket.fd(), half->out.data() + half->sent,
                             kHelloBytes - half->sent, MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN) return Lost(half);
      half->sent += std::size_t(std::max<ssize_t>(n, 0));
      // One event, one call: more would block the other handshakes.
      return;
    }
    // The proof follows the hello on the same connection.
    const std::size_t want = kHelloBytes + (half->greeted ? kProofBytes : 0);
    const ssize_t n = recv(half->socket.fd(), half->in.data() + half->got, want - half->got, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return Lost(half);
    half->got += std::size_t(std::max<ssize_t>(n, 0));
    if (half->got < want) return;
    if (half->greeted) return Proven(half);
    half->peer < 0 ? Greet(half) : Answered(half);
  }

  // A lost connection is an error only if this rank opened it.
  void Lost(Half* half) {
    half->over = true;
    if (half->peer >= 0) error_ = Unavailable("{} closed the connection", Name(half->peer));
  }

  // Accepting side: checks a received hello and replies with ours, or with a refusal.
  void Greet(Half* half) {
    half->over = true;
    const Result<Hello> theirs = DecodeHello(half->TheirHello());
    if (!theirs.ok()) {
      LogWarning("group {:?}: refused a client: {}", options_.group, theirs.status().message());
      return;
    }
    // The lane of the request; its other fields were not checked yet.
    Hello answer = Ours(theirs->lane);
    answer.refusal = CheckHello(answer, *theirs);
    // Only higher ranks connect here, once per lane.
    if (answer.refusal == Hello::Refusal::kNone &&
        (theirs->rank < options_.rank || LinkOf(theirs->rank, theirs->lane).open())) {
      answer.refusal = Hello::Refusal::kRank;
    }
    if (answer.refusal != Hello::Refusal::kNone) {
      LogWarning("group {:?} epoch {}: refused rank {} of {:?} epoch {}: {}", options_.group,
                 options_.epoch, theirs->rank, theirs->group, theirs->epoch,
                 RefusalText(answer.refusal));
      answer.token = 0;  // not disclosed to an unknown client
    }
    half->out = EncodeHello(answer);
    if (!SendAll(half, half->out) || answer.refusal != Hello::Refusal::kNone) return;
    half->theirs = *theirs;
    if (!options_.secret) return Done(half);
    half->over =
        !SendAll(half, MakeProof(*options_.secret, Side::kAccepts, half->TheirHello(), half->out));
    half->greeted = true;
  }

  // Sends at once: the buffer of a new connection has room for these bytes.
  static bool SendAll(Half* half, std::span<const std::byte> bytes) {
    const ssize_t n = send(half->socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return n == ssize_t(bytes.size());
  }

  // The handshake succeeded: the connection becomes a link.
  void Done(Half* half) {
    half->over = true;
    LinkOf(half->theirs.rank, half->theirs.lane) = std::move(half->socket);
    --missing_;
  }

  // Checks the received proof. The connecting side then sends its own.
  void Proven(Half* half) {
    half->over = true;
    const bool accepted = half->peer < 0;
    const HelloBytes theirs = half->TheirHello();
    const ProofBytes due = accepted
                               ? MakeProof(*options_.secret, Side::kConnects, theirs, half->out)
                               : MakeProof(*options_.secret, Side::kAccepts, half->out, theirs);
    if (!AreEqual(std::span(half->in).subspan(kHelloBytes), due)) {
      const char* const why = "does not have this run's secret";
      if (!accepted) error_ = Aborted("{} {}", Name(half->peer), why);
      LogWarning("group {:?}: a client claiming to be rank {} {}", options_.group,
                 half->theirs.rank, why);
      return;
    }
    if (LinkOf(half->theirs.rank, half->theirs.lane).open()) return;  // a duplicate
    if (!accepted) {
      const ProofBytes ours = MakeProof(*options_.secret, Side::kConnects, half->out, theirs);
      if (!SendAll(half, ours)) return Lost(half);
    }
    Done(half);
  }

  // Connecting side: checks the reply to our hello.
  void Answered(Half* half) {
    half->over = true;
    const Result<Hello> theirs = DecodeHello(half->TheirHello());
    if (!theirs.ok()) {
      error_ = theirs.status().WithContext(Name(half->peer));
      return;
    }
    Hello::Refusal refusal = theirs->refusal;
    if (refusal == Hello::Refusal::kNone) refusal = CheckHello(Ours(half->lane), *theirs);
    if (refusal == Hello::Refusal::kNone &&
        (theirs->rank != half->peer || theirs->lane != half->lane)) {
      refusal = Hello::Refusal::kRank;
    }
    if (refusal != Hello::Refusal::kNone) {
      error_ = Aborted("{} refuses rank {} of epoch {}: {}", Name(half->peer), options_.rank,
                       options_.epoch, RefusalText(refusal));
      return;
    }
    half->theirs = *theirs;
    if (!options_.secret) return Done(half);
    half->over = false;
    half->greeted = true;
  }

  const GroupOptions& options_;
  const std::span<const Member> members_;
  const Socket listener_;
  std::list<Half> halves_;
  std::vector<Link> links_;
  std::size_t missing_;
  Status error_;
};

}  // namespace

Result<std::vector<Link>> MakeMesh(const GroupOptions& options, std::span<const Member> members,
                                   Socket listener, Time deadline) {
  return MeshMaker(options, members, std::move(listener)).Make(deadline);
}

}  // namespace troop
