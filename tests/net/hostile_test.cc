// Bytes that no program of ours sends, on every kind of port: the server lives, stays small, and
// serves its good clients meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "core/storage/crc32c.h"
#include "net/wire/shared_memory.h"
#include "tests/core/temp_folder.h"
#include "tests/net/net_testing.h"
#include "tests/net/raw_peer.h"

namespace troop {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kChannel = 4242;

class HostileTest : public testing::TestWithParam<const char*> {
 protected:
  explicit HostileTest(const NetworkOptions& options = {.message_bytes_max = 1 << 20})
      : network_(*MakeZmqNetwork(options)) {
    const std::string kind = GetParam();
    const auto wanted =
        kind == "ipc" ? "ipc://" + folder_.path() + "/s" : std::string("tcp://127.0.0.1:0");
    auto listener = network_->Listen(wanted, &echo_);
    TROOP_CHECK(listener.ok(), "{}", listener.status().message());
    listener_ = std::move(listener).value();
    channel_ = *network_->Connect(listener_->endpoint(), ActorOptions(1));
  }

  Time Now() { return SystemClock().Now(); }
  bool RunUntil(const std::function<bool()>& done) {
    const Time end = Now() + Seconds(20);
    while (!done()) {
      if (!network_->Pump(Now())) network_->Wait(Now(), Now() + Milliseconds(1));
      if (Now() > end) return false;
    }
    return true;
  }
  void ExpectService() {
    Message message = TestMessage("good", {TestBytes(300'000)});
    const Ticket ticket = *channel_->Send(message, kForever);
    std::optional<Result<Message>> answer;
    ASSERT_TRUE(RunUntil([&] { return (answer = channel_->Poll(ticket)).has_value(); }));
    EXPECT_TRUE(answer->ok()) << answer->status().ToString();
  }
  void ExpectCut(RawPeer& peer) {
    EXPECT_TRUE(RunUntil([&] { return peer.Cut(); }));
  }

  static std::string Hello(std::uint64_t channel = kChannel) {
    return RawPeer::FirstFrame(
        {.flags = kFlagHello, .channel = channel},
        {.type = MessageType::kHeartbeat,
         .origin = {.role = Role::kActor, .index = 9, .incarnation = 1, .oldest_open = 1}});
  }
  // A peer past its handshake, and past Hello if `known`.
  std::unique_ptr<RawPeer> Enter(bool known) {
    auto peer = std::make_unique<RawPeer>(listener_->endpoint());
    peer->Send(RawPeer::Handshake(RawPeer::RoutingId(kChannel)));
    // ZeroMQ closes a connection on messages that come before its own READY has left.
    EXPECT_TRUE(RunUntil([&] { return peer->Received().find("READY") != std::string::npos; }));
    if (known) {
      peer->Send(RawPeer::FrameOf(Hello()));
      EXPECT_TRUE(RunUntil([&] { return !Session(*peer).empty(); }));
    }
    return peer;
  }
  // The session that a Welcome among the received bytes names; empty: none yet.
  static std::string Session(RawPeer& peer) {
    const std::string& bytes = peer.Received();
    for (std::size_t at = 0; (at = bytes.find("$TRP", at)) != std::string::npos; ++at) {
      if (bytes.size() >= at + kHeaderBytes && bytes[at + 12] == kFlagWelcome) {
        return bytes.substr(at + 64, 8);
      }
    }
    return {};
  }

  TempFolder folder_;
  EchoService echo_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Channel> channel_;
};

INSTANTIATE_TEST_SUITE_P(Transports, HostileTest, testing::Values("ipc", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

// ZeroMQ takes many of them for peers of 2010 (ZMTP 1.0), whose frames are refused, or waits 5 s
// for the rest of their handshake.
TEST_P(HostileTest, ToleratesRandomBytesAndOtherProtocols) {
  std::vector<std::unique_ptr<RawPeer>> peers;
  std::uint32_t seed = 1;
  for (int i = 0; i < 50; ++i) {
    std::string noise(4096, '\0');
    for (char& c : noise) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
    if (i % 10 == 0) noise = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + noise;
    peers.push_back(std::make_unique<RawPeer>(listener_->endpoint()));
    peers.back()->Send(noise);
  }
  ExpectService();
  EXPECT_TRUE(RunUntil([&] {  // some are closed at once
    return std::any_of(peers.begin(), peers.end(), [](const auto& peer) { return peer->Cut(); });
  }));
  ExpectService();
  EXPECT_EQ(echo_.changes.size(), 1u) << "none of them became a client";
}

// ZMTP 1 without and with a signature, and ZMTP 2: no security, and paths of libzmq that assert.
TEST_P(HostileTest, RejectsOldProtocols) {
  const std::string signature = std::string("\xff\0\0\0\0\0\0\0\x01\x7f", 10);
  const std::string id = std::string("\0\x03me!", 5), message = std::string("\0\x05hello", 7);
  for (const std::string& greeting : {std::string("\x04\0me!", 5) + std::string("\x06\0hello", 7),
                                      signature + std::string("\0\x05", 2) + id + message,
                                      signature + std::string("\x01\x05", 2) + id + message}) {
    RawPeer peer(listener_->endpoint());
    peer.Send(greeting);
    ExpectCut(peer);
    EXPECT_LE(peer.Received().size(), 10u) << "no handshake is answered beyond the signature";
  }
  ExpectService();
}

TEST_P(HostileTest, ToleratesSilentConnections) {
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(std::make_unique<RawPeer>(listener_->endpoint()));
  ExpectService();
}

TEST_P(HostileTest, DisconnectsPeerAfterMalformedMessage) {
  const std::string good = Hello();
  std::string bad_crc = good;
  bad_crc[70] ^= 1;
  std::string claims = good;  // with a right checksum
  const std::uint64_t body = ~std::uint64_t{0} - 100;
  std::memcpy(claims.data() + 72, &body, sizeof body);
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(claims)).subspan(8));
  std::memcpy(claims.data() + 4, &crc, sizeof crc);
  const std::string bad[] = {
      "",
      "x",
      std::string(79, '\0'),
      std::string(5000, 'z'),
      good.substr(0, good.size() - 1),
      good + "x",
      bad_crc,
      claims,
      Hello(kChannel + 1),  // another client's channel
  };
  for (const std::string& frame : bad) {
    const auto peer = Enter(/*known=*/false);
    peer->Send(RawPeer::FrameOf(frame));
    ExpectCut(*peer);
  }
  const auto surplus = Enter(/*known=*/false);
  surplus->Send(RawPeer::FrameOf(good, /*more=*/true) + RawPeer::FrameOf("surplus"));
  ExpectCut(*surplus);
  ExpectService();
  EXPECT_EQ(echo_.changes.size(), 1u) << "none of them became a client";
}

TEST_P(HostileTest, DisconnectsKnownClientAfterMalformedMessage) {
  const auto peer = Enter(/*known=*/true);
  EXPECT_TRUE(echo_.Saw(9, PeerState::kUp));
  peer->Send(RawPeer::FrameOf("nonsense"));
  ExpectCut(*peer);
  EXPECT_TRUE(RunUntil([&] { return echo_.Saw(9, PeerState::kDown); }));
  ExpectService();
}

TEST_P(HostileTest, NamesSenderOfMalformedMessage) {
  const auto peer = Enter(/*known=*/true);
  testing::internal::CaptureStderr();
  peer->Send(RawPeer::FrameOf("nonsense"));
  ExpectCut(*peer);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("from " + peer->name()));
}

TEST_P(HostileTest, RejectsHugeLengthsWithoutAllocating) {
  for (const std::uint64_t length : {std::uint64_t{1} << 33, std::uint64_t{1} << 50,
                                     ~std::uint64_t{0} >> 1, ~std::uint64_t{0}}) {
    const auto peer = Enter(/*known=*/true);
    peer->Send("\x02" + RawPeer::BigEndian(length, 8) + "start");
    ExpectCut(*peer);
  }
  ExpectService();
}

TEST_P(HostileTest, RepliesWithOwnVersionToOtherVersion) {
  const auto peer = Enter(/*known=*/false);
  std::string hello = Hello();
  hello[8] = 9;
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(hello)).subspan(8));
  std::memcpy(hello.data() + 4, &crc, sizeof crc);
  peer->Send(RawPeer::FrameOf(hello));
  std::size_t frame = std::string::npos;
  EXPECT_TRUE(RunUntil([&] {
    frame = peer->Received().find("$TRP");
    return frame != std::string::npos && peer->Received().size() >= frame + kHeaderBytes;
  }));
  EXPECT_EQ(peer->Received()[frame + 8], kWireVersion);
}

TEST_P(HostileTest, HandlesRepeatedCallOnce) {
  const auto peer = Enter(/*known=*/true);
  Envelope envelope{.flags = kFlagCall, .channel = kChannel};
  const std::string session = Session(*peer);
  std::memcpy(&envelope.session, session.data(), sizeof envelope.session);
  Message call = TestMessage("once");
  call.origin = {
      .role = Role::kActor, .index = 9, .incarnation = 1, .sequence = 1, .oldest_open = 1};
  const std::string frame = RawPeer::FrameOf(RawPeer::FirstFrame(envelope, call));
  for (int i = 0; i < 5; ++i) peer->Send(frame);
  const auto answers = [&] {
    const std::string& bytes = peer->Received();
    int n = 0;
    for (std::size_t at = 0; (at = bytes.find("once", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_TRUE(RunUntil([&] { return answers() == 5; }));
  EXPECT_EQ(echo_.handled.size(), 1u);
}

// Over TCP, a ticket for shared memory is rejected, whether or not the block exists.
TEST_P(HostileTest, AcceptsMemoryTicketsOnlyOverIpc) {
  const Buffer part = CopyToSharedBuffer(TestBytes(300'000).bytes());
  for (const bool lies : {true, false}) {
    BufferHandle ticket = *SharedBufferPool::Get().Share(part);
    if (lies) ticket.id ^= 1;
    const auto peer = Enter(/*known=*/true);
    Envelope envelope{.flags = kFlagCall, .channel = kChannel};
    const std::string session = Session(*peer);
    std::memcpy(&envelope.session, session.data(), sizeof envelope.session);
    Message call = TestMessage("shared", {part});
    call.origin = {
        .role = Role::kActor, .index = 9, .incarnation = 1, .sequence = 1, .oldest_open = 1};
    peer->Send(RawPeer::FrameOf(RawPeer::FirstFrame(envelope, call), true) +
               RawPeer::FrameOf({reinterpret_cast<const char*>(&ticket), sizeof ticket}));
    if (lies || GetParam() == std::string("tcp")) {
      ExpectCut(*peer);
      EXPECT_TRUE(echo_.handled.empty());
      EXPECT_TRUE(RunUntil([&] { return echo_.Saw(9, PeerState::kDown); }));
    } else {
      EXPECT_TRUE(RunUntil([&] { return echo_.handled.size() == 1; }));
    }
  }
  echo_.handled.clear();
  ExpectService();
}

// ZeroMQ's heartbeats are frequent here, and no node pumps when they are due.
class GoneTest : public HostileTest {
 protected:
  GoneTest() : HostileTest({.dead_after = Seconds(5), .heartbeat_every = Milliseconds(10)}) {}
  // Some heartbeats of the I/O thread. There is nothing to wait for: the test is that it survives.
  static void Pass() { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }
};
INSTANTIATE_TEST_SUITE_P(Transports, GoneTest, testing::Values("ipc", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

// libzmq aborted the process: "Assertion failed: !_io_error".
TEST_P(GoneTest, ClientSurvivesServerExitWithFullQueue) {
  echo_.park = true;
  auto clients = *MakeZmqNetwork({.dead_after = Seconds(5), .heartbeat_every = Milliseconds(10)});
  ChannelOptions options = ActorOptions(2);
  options.window = 300;
  const auto channel = *clients->Connect(listener_->endpoint(), options);
  for (int i = 0; i < 300; ++i) {
    Message message = TestMessage("x");
    ASSERT_TRUE(channel->Send(message, kForever).ok());
  }
  ASSERT_TRUE(RunUntil([&] {
    clients->Pump(Now());
    return echo_.parked.size() == 300;
  }));
  for (auto& [message, reply] : echo_.parked) reply.Send(TestMessage("", {TestBytes(5000)}));
  const Time flushed = Now() + Milliseconds(100);
  RunUntil([&] { return Now() > flushed; });
  listener_.reset();
  Pass();
  EXPECT_TRUE(RunUntil([&] {
    clients->Pump(Now());
    return channel->peer() == PeerState::kDown;
  }));
}

// Resident memory of this process; 0 under the address and thread sanitizers, which keep freed
// memory.
std::size_t MemoryHeld() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0;
#else
  std::size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * std::size_t(sysconf(_SC_PAGESIZE));
#endif
}

// ZeroMQ limits frames and counts complete messages; this message never is. (Over ipc only our own
// user can connect, and the kernel does not count.)
class EndlessTest : public HostileTest {
 protected:
  // Returns the number of bytes the peer sent before it was disconnected; more than `limit` if it
  // was not.
  std::size_t SendWithoutEnd(RawPeer& peer, std::string_view frames, std::size_t limit) {
    std::size_t sent = 0;
    std::size_t at = 0;
    const std::size_t before = MemoryHeld();
    RunUntil([&] {
      const std::size_t n = peer.TrySend(frames.substr(at));
      sent += n;
      at = (at + n) % frames.size();
      memory_ = std::max(memory_, MemoryHeld() - std::min(before, MemoryHeld()));
      return peer.Cut() || sent > limit;
    });
    return sent;
  }
  std::size_t memory_ = 0;  // largest growth of resident memory meanwhile
};
INSTANTIATE_TEST_SUITE_P(Transports, EndlessTest, testing::Values("tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EndlessTest, DisconnectsStrangerSendingEndlessMessage) {
  const auto peer = Enter(/*known=*/false);
  std::string frames;
  for (int i = 0; i < 1000; ++i) frames += std::string("\x01\x08", 2) + "12345678";
  constexpr std::size_t kLimit = 256 << 20;
  testing::internal::CaptureStderr();
  EXPECT_LT(SendWithoutEnd(*peer, frames, kLimit), kLimit);
  EXPECT_TRUE(peer->Cut());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("closed the connection of " + peer->name()));
  EXPECT_LT(memory_, kLimit);
  ExpectService();
}

TEST_P(EndlessTest, DisconnectsKnownClientSendingEndlessMessage) {
  const auto peer = Enter(/*known=*/true);
  const std::string frame = RawPeer::FrameOf(std::string(60'000, 'x'), /*more=*/true);
  constexpr std::size_t kLimit = std::size_t{2} << 30;
  testing::internal::CaptureStderr();
  EXPECT_LT(SendWithoutEnd(*peer, frame, kLimit), kLimit);
  EXPECT_TRUE(peer->Cut());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("closed the connection of " + peer->name()));
  EXPECT_LT(memory_, kLimit / 2);
  ExpectService();
}

// Bytes that trickle: each peer is quick enough for any silence limit and never says anything.
class SlowTest : public HostileTest {
 protected:
  SlowTest() : HostileTest({.dead_after = Milliseconds(300), .forget_after = Milliseconds(1500)}) {}
  // A byte every few milliseconds until the connection is cut; false if it never is.
  bool Drip(RawPeer& peer, std::string_view bytes) {
    std::size_t at = 0;
    Time next{};
    return RunUntil([&] {
      if (Now() >= next && at < bytes.size()) {
        at += peer.TrySend(bytes.substr(at, 1));
        next = Now() + Milliseconds(5);
      }
      return peer.Cut();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, SlowTest, testing::Values("tcp"),
                         [](const auto& info) { return std::string(info.param); });

// ZeroMQ's own limit of 5 s, whatever comes meanwhile.
TEST_P(SlowTest, DisconnectsAndNamesTricklingHandshake) {
  RawPeer peer(listener_->endpoint());
  testing::internal::CaptureStderr();
  // The greeting is fine; a command without end follows.
  std::string bytes = RawPeer::Handshake(RawPeer::RoutingId(kChannel)).substr(0, 64);
  bytes += std::string("\x06", 1) + RawPeer::BigEndian(1 << 19, 8) + std::string(1 << 14, 'x');
  EXPECT_TRUE(Drip(peer, bytes));
  ExpectService();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(peer.name()));
}

TEST_P(SlowTest, DisconnectsAndNamesStrangerTricklingMessage) {
  const auto peer = Enter(/*known=*/false);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Drip(*peer, RawPeer::FrameOf(std::string(50'000, 'x'))));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      log, HasSubstr("closed the connection of " + peer->name() + ": it sent no complete message"));
  ExpectService();
}

TEST_P(SlowTest, DisconnectsAndNamesStrangerSilentAfterHandshake) {
  const auto peer = Enter(/*known=*/false);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(RunUntil([&] { return peer->Cut(); }));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      log, HasSubstr("closed the connection of " + peer->name() + ": it sent no complete message"));
  ExpectService();
}

// The client's node is reported as hung; the incomplete message occupies at most its own size. If
// it never completes, the client is disconnected.
TEST_P(SlowTest, DisconnectsAndNamesKnownClientTricklingMessage) {
  const auto peer = Enter(/*known=*/true);
  EXPECT_TRUE(echo_.Saw(9, PeerState::kUp));
  const std::size_t before = MemoryHeld();
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Drip(*peer, RawPeer::FrameOf(std::string(100'000, 'x'))));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      log, HasSubstr("closed the connection of " + peer->name() + ": it sent no complete message"));
  EXPECT_TRUE(echo_.Saw(9, PeerState::kHung));
  EXPECT_LT(MemoryHeld(), before + (64 << 20));
  EXPECT_TRUE(echo_.bodies.empty());
  ExpectService();
}

}  // namespace
}  // namespace troop
