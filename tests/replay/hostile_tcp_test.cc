// A replay server at a real TCP port, and a peer that replays the messages of others: experience is
// inserted once, whichever peer repeats it, and an endless message takes no memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "net/wire/codec.h"
#include "replay/service/messages.h"
#include "tests/net/raw_peer.h"
#include "tests/replay/replay_world.h"

namespace troop {
namespace {

using testing::HasSubstr;

class HostileTcpTest : public testing::Test {
 protected:
  HostileTcpTest() {
    auto made = MakeReplayServer(SmallOptions());
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    server_ = std::move(*made);
    network_ = *MakeZmqNetwork({.message_bytes_max = 1 << 20});
    listener_ = *network_->Listen("tcp://127.0.0.1:0", server_.get());
  }
  Time Now() { return SystemClock().Now(); }
  bool RunUntil(const std::function<bool()>& done) {
    const Time end = Now() + Seconds(20);
    while (!done()) {
      server_->Tick(Now());
      if (!network_->Pump(Now())) network_->Wait(Now(), Now() + Milliseconds(1));
      if (Now() > end) return false;
    }
    return true;
  }
  double Metric(std::string_view name) const {
    Metrics metrics;
    server_->Report(&metrics);
    return metrics.Get(name);
  }
  static Message Insert(StreamId stream) {
    const EncodedChunk chunk = PlainChunk(MakeChunk(stream, 0, 10));
    return PackInsert(0, SmallSpec(), Codec::kNone, {&chunk, 1}, MakeItems(stream, 0, 8, 1, 2));
  }

  // An actor byte by byte.
  struct Actor {
    std::unique_ptr<RawPeer> peer;
    std::uint64_t channel = 0, incarnation = 0;
    std::string session;
    // A call as it lies on the wire; those before `oldest_open` (0: this one) have their answers.
    std::string Call(Message message, std::uint64_t sequence, std::uint64_t oldest_open = 0) const {
      Envelope envelope{.flags = kFlagCall, .channel = channel};
      std::memcpy(&envelope.session, session.data(), sizeof envelope.session);
      message.origin = {.role = Role::kActor,
                        .index = 9,
                        .incarnation = incarnation,
                        .sequence = sequence,
                        .oldest_open = oldest_open == 0 ? sequence : oldest_open};
      return RawPeer::FrameOf(RawPeer::FirstFrame(envelope, message));
    }
    // Answers of type `type` among what came.
    int Answers(MessageType type) const {
      const std::string& bytes = peer->Received();
      int n = 0;
      for (std::size_t at = 0; (at = bytes.find("$TRP", at)) != std::string::npos; ++at) {
        if (bytes.size() < at + kHeaderBytes) break;
        std::uint16_t got = 0;
        std::memcpy(&got, bytes.data() + at + 10, sizeof got);
        n += got == std::uint16_t(type) ? 1 : 0;
      }
      return n;
    }
  };
  // Past its handshake and Hello; without a session where it was turned away.
  Actor Enter(std::uint64_t channel, std::uint64_t incarnation) {
    Actor actor{std::make_unique<RawPeer>(listener_->endpoint()), channel, incarnation, ""};
    actor.peer->Send(RawPeer::Handshake(RawPeer::RoutingId(channel)));
    EXPECT_TRUE(
        RunUntil([&] { return actor.peer->Received().find("READY") != std::string::npos; }));
    actor.peer->Send(RawPeer::FrameOf(RawPeer::FirstFrame(
        {.flags = kFlagHello, .channel = channel},
        {.type = MessageType::kHeartbeat,
         .origin = {
             .role = Role::kActor, .index = 9, .incarnation = incarnation, .oldest_open = 1}})));
    std::size_t at = std::string::npos;
    EXPECT_TRUE(RunUntil([&] {
      const std::string& bytes = actor.peer->Received();
      at = bytes.find("$TRP");
      return at != std::string::npos && bytes.size() >= at + kHeaderBytes;
    }));
    const std::string& bytes = actor.peer->Received();
    if (bytes[at + 12] == kFlagWelcome) actor.session = bytes.substr(at + 64, 8);
    return actor;
  }

  std::unique_ptr<ReplayServer> server_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(HostileTcpTest, AppliesReplayedInsertBytesOnce) {
  std::string recorded;
  {
    const Actor actor = Enter(1, 1);
    recorded = actor.Call(Insert(1), 1);
    actor.peer->Send(recorded);
    EXPECT_TRUE(RunUntil([&] { return actor.Answers(MessageType::kInsertReply) == 1; }));
  }
  for (int i = 0; i < 5; ++i) {
    const Actor thief = Enter(1, 1);
    thief.peer->Send(recorded + recorded);
    EXPECT_TRUE(RunUntil([&] { return thief.Answers(MessageType::kInsertReply) == 2; }));
  }
  EXPECT_EQ(Metric("replay/items"), 8);
  EXPECT_EQ(Metric("replay/inserts"), 8);
}

// The attacker speaks the protocol: it uses its own channel and sequence numbers.
TEST_F(HostileTcpTest, DeduplicatesReplayedInsertWithNewSequence) {
  for (std::uint64_t channel = 1; channel <= 3; ++channel) {
    const Actor actor = Enter(channel, 1);
    actor.peer->Send(actor.Call(Insert(1), 1) + actor.Call(Insert(1), 2));
    EXPECT_TRUE(RunUntil([&] { return actor.Answers(MessageType::kInsertReply) == 2; }));
  }
  EXPECT_EQ(Metric("replay/items"), 8);
  EXPECT_EQ(Metric("replay/duplicate_items"), 40);
}

TEST_F(HostileTcpTest, RejectsAndLogsInsertsOfOlderIncarnation) {
  const Actor old = Enter(1, 1);
  const Actor successor = Enter(2, 2);
  ASSERT_FALSE(successor.session.empty());
  EXPECT_TRUE(RunUntil([&] { return old.Answers(MessageType::kError) >= 1; }))
      << "the older incarnation receives an error";
  testing::internal::CaptureStderr();
  old.peer->Send(old.Call(Insert(1), 1));
  EXPECT_TRUE(RunUntil([&] { return old.Answers(MessageType::kError) >= 2; }));
  const Actor again = Enter(3, 1);
  EXPECT_TRUE(again.session.empty());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("rejected: actor 9 (incarnation 1) was replaced"));
  EXPECT_EQ(Metric("replay/items"), 0);
  successor.peer->Send(successor.Call(Insert(1), 1));
  EXPECT_TRUE(RunUntil([&] { return successor.Answers(MessageType::kInsertReply) == 1; }));
  EXPECT_EQ(Metric("replay/items"), 8);
}

// Its frames would be 32 GiB.
TEST_F(HostileTcpTest, RejectsOversizedInsertClaimWithoutAllocating) {
  const auto resident = [] {
    std::size_t all = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> all >> pages;
    return pages * std::size_t(sysconf(_SC_PAGESIZE));
  };
  const Actor actor = Enter(1, 1);
  const std::size_t before = resident();
  for (std::uint64_t n = 1; n <= 100; ++n) {
    Message message = Insert(1);
    message.body = EncodeBody(InsertBody{0, {{1, 0, 0xFFFFFFFF}}, 0xFFFFFFFF});
    actor.peer->Send(actor.Call(std::move(message), n, /*oldest_open=*/1));
  }
  EXPECT_TRUE(RunUntil([&] { return actor.Answers(MessageType::kError) == 100; }));
  EXPECT_LT(resident(), before + (64 << 20));
  EXPECT_EQ(Metric("replay/rejected_requests"), 100);
  actor.peer->Send(actor.Call(Insert(1), 101));
  EXPECT_TRUE(RunUntil([&] { return actor.Answers(MessageType::kInsertReply) == 1; }));
}

}  // namespace
}  // namespace troop
