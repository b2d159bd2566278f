// Repetition, sessions and refusals, on a transport of the test's own.
#include "net/rpc/call_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/error.h"
#include "tests/net/net_testing.h"

namespace troop {
namespace {

class FakeChannel final : public CallChannel {
 public:
  explicit FakeChannel(const ChannelOptions& options = ActorOptions())
      : CallChannel("fake", options, NetworkOptions{}, 7, false) {}
  // Sequences of the calls that left since the last time; other kinds are counted as 0.
  std::vector<std::uint64_t> Take() { return std::exchange(sent_, {}); }
  bool room = true;
  Origin last;

 protected:
  bool Transmit(const Envelope& envelope, const Message& message) override {
    if (!room) return false;
    last = message.origin;
    sent_.push_back(envelope.flags & kFlagCall ? message.origin.sequence : 0);
    return true;
  }

 private:
  std::vector<std::uint64_t> sent_;
};

class CallChannelTest : public testing::Test {
 protected:
  void Welcome(std::uint64_t session = 1) {
    channel_.Receive({.flags = kFlagWelcome, .channel = 7, .session = session}, {}, now_);
  }
  void Connect(std::uint64_t session = 1) {
    channel_.Connected(now_);
    channel_.Tick(now_);
    Welcome(session);
  }
  Ticket Send(Time deadline = kForever) {
    Message message = TestMessage("x");
    return *channel_.Send(message, deadline);
  }
  void Answer(std::uint64_t sequence, Message message = TestMessage("y")) {
    message.origin.sequence = sequence;
    channel_.Receive({.flags = kFlagReply, .channel = 7, .session = 1}, std::move(message), now_);
  }

  FakeChannel channel_;
  Time now_ = Time(Seconds(100));
};

TEST_F(CallChannelTest, SendsOnlyHelloBeforeWelcome) {
  Send();
  channel_.Tick(now_);
  EXPECT_THAT(channel_.Take(), testing::ElementsAre(0));
  Send();
  Connect();
  EXPECT_THAT(channel_.Take(), testing::ElementsAre(0, 1, 2));
  Send();
  EXPECT_THAT(channel_.Take(), testing::ElementsAre(3)) << "at once, without a Pump";
}

TEST_F(CallChannelTest, ResendsUnansweredCallsInOrderAfterReconnect) {
  Connect();
  for (int i = 0; i < 4; ++i) Send();
  Answer(2);
  channel_.Forget(3);
  channel_.Disconnected(now_);
  channel_.Take();
  Send();
  EXPECT_TRUE(channel_.Take().empty());
  Connect();
  EXPECT_THAT(channel_.Take(), testing::ElementsAre(0, 1, 4, 5));
  EXPECT_EQ(channel_.last.oldest_open, 1u);
}

TEST_F(CallChannelTest, ResendsOnNewSessionButNotOnRepeatedWelcome) {
  Connect(1);
  Send();
  channel_.Take();
  Welcome(1);
  EXPECT_TRUE(channel_.Take().empty());
  Welcome(2);
  EXPECT_THAT(channel_.Take(), testing::ElementsAre(1));
}

TEST_F(CallChannelTest, OldestOpenCallAdvancesWithRepliesAndDeadlines) {
  Connect();
  Send();
  Send(now_ + Milliseconds(10));
  Send();
  Answer(1);
  channel_.Tick(now_ + Milliseconds(10));
  Send();
  EXPECT_EQ(channel_.last.oldest_open, 3u);
  EXPECT_EQ(channel_.Poll(2)->status().code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(channel_.Poll(1)->ok());
}

TEST_F(CallChannelTest, QueuesCallsInOrderWhileBufferIsFull) {
  Connect();
  channel_.room = false;
  Send();
  Send();
  channel_.Take();
  EXPECT_LE(channel_.next_tick() - now_, Milliseconds(1));
  channel_.room = true;
  Send();
  EXPECT_TRUE(channel_.Take().empty()) << "no call overtakes another";
  channel_.Tick(now_);
  EXPECT_THAT(channel_.Take(), testing::ElementsAre(1, 2, 3));
}

TEST_F(CallChannelTest, UnpolledReplyOccupiesWindow) {
  ChannelOptions options = ActorOptions();
  options.window = 1;
  FakeChannel channel(options);
  Message message = TestMessage("x");
  const Ticket ticket = *channel.Send(message, now_);
  channel.Tick(now_);
  EXPECT_FALSE(channel.CanSend());
  EXPECT_TRUE(channel.Poll(ticket).has_value());
  EXPECT_TRUE(channel.CanSend());
}

TEST_F(CallChannelTest, LimitsSequenceSpanAheadOfOpenCall) {
  Connect();
  Send();
  for (std::uint64_t s = 2; s <= kSequenceSpanMax; ++s) {
    ASSERT_EQ(Send(), s);
    Answer(s);
    ASSERT_TRUE(channel_.Poll(s)->ok());
  }
  EXPECT_FALSE(channel_.CanSend());
  Message message = TestMessage("x");
  EXPECT_EQ(channel_.Send(message, kForever).status().code(), Code::kResourceExhausted);
  Answer(1);
  EXPECT_TRUE(channel_.CanSend());
}

TEST_F(CallChannelTest, IgnoresUnexpectedReplies) {
  Connect();
  Send();
  Answer(1);
  Answer(1);
  Answer(2);
  Answer(1'000'000);
  EXPECT_TRUE(channel_.Poll(1)->ok());
  channel_.Receive({.flags = kFlagReply, .channel = 8}, TestMessage("of another channel"), now_);
  EXPECT_EQ(channel_.in_flight(), 0);
}

TEST_F(CallChannelTest, IgnoresRepeatedRepliesAndRepliesToAbandonedCalls) {
  Connect();
  const Ticket held = Send(), given_up = Send(), expired = Send(now_ + Seconds(1)), twice = Send();
  channel_.Forget(given_up);
  now_ += Seconds(2);
  channel_.Tick(now_);
  Answer(given_up);
  Answer(expired);
  EXPECT_FALSE(channel_.Poll(given_up).has_value());
  EXPECT_EQ(channel_.Poll(expired)->status().code(), Code::kDeadlineExceeded);
  Answer(twice, TestMessage("first"));
  Answer(twice, TestMessage("second"));
  EXPECT_EQ((*channel_.Poll(twice))->body, TestMessage("first").body);
  EXPECT_EQ(channel_.in_flight(), 1);
  EXPECT_FALSE(channel_.Poll(held).has_value());
}

TEST_F(CallChannelTest, FencedChannelFailsAllCallsPermanently) {
  Connect();
  const Ticket ticket = Send();
  Answer(0, MakeErrorMessage(Aborted("replaced")));
  EXPECT_EQ(channel_.Poll(ticket)->status().code(), Code::kAborted);
  Message message = TestMessage("x");
  EXPECT_EQ(channel_.Send(message, kForever).status().code(), Code::kAborted);
  channel_.Take();
  channel_.Tick(now_ + Seconds(10));
  EXPECT_TRUE(channel_.Take().empty()) << "it has nothing more to say";
}

TEST_F(CallChannelTest, EvictedChannelFailsSentCallsAndRepeatsHello) {
  Connect();
  const Ticket sent = Send();
  channel_.room = false;
  const Ticket waiting = Send();
  channel_.room = true;
  Answer(0, MakeErrorMessage(DeadlineExceeded("forgotten")));
  EXPECT_EQ(channel_.Poll(sent)->status().code(), Code::kDeadlineExceeded);
  EXPECT_FALSE(channel_.Poll(waiting).has_value());
  channel_.Take();
  channel_.Tick(now_);
  EXPECT_EQ(channel_.last.oldest_open, 2u);
  Welcome();
  EXPECT_THAT(channel_.Take(), testing::ElementsAre(0, 2));
}

TEST_F(CallChannelTest, SendsHeartbeatsOnlyWhenIdle) {
  Connect();
  channel_.Take();
  for (int i = 0; i < 40; ++i) {  // 4 s of calls
    channel_.Tick(now_ += Milliseconds(100));
    const Ticket ticket = Send();
    Answer(ticket);
    EXPECT_TRUE(channel_.Poll(ticket).has_value());
  }
  EXPECT_THAT(channel_.Take(), testing::Not(testing::Contains(0)));
  for (int i = 0; i < 20; ++i) channel_.Tick(now_ += Milliseconds(100));
  EXPECT_THAT(channel_.Take(), testing::ElementsAre(0, 0, 0, 0)) << "2 s of silence";
}

TEST_F(CallChannelTest, PeerStateFollowsReceivedMessages) {
  EXPECT_EQ(channel_.peer(), PeerState::kConnecting);
  Connect();
  channel_.Tick(now_);
  EXPECT_EQ(channel_.peer(), PeerState::kUp);
  for (int i = 0; i < 16; ++i) channel_.Tick(now_ += Milliseconds(100));
  EXPECT_EQ(channel_.peer(), PeerState::kHung);
  channel_.Disconnected(now_);
  channel_.Tick(now_);
  EXPECT_EQ(channel_.peer(), PeerState::kDown);
  channel_.Connected(now_);
  channel_.Tick(now_);
  EXPECT_EQ(channel_.peer(), PeerState::kDown) << "a connection is not yet an answer";
  Welcome();
  channel_.Tick(now_);
  EXPECT_EQ(channel_.peer(), PeerState::kUp);
  channel_.Tick(now_ += Seconds(60));  // this side paused, not the peer
  EXPECT_EQ(channel_.peer(), PeerState::kUp);
}

// Each normal end of a run logged "the peer is down" of roles that had left a moment earlier.
TEST_F(CallChannelTest, LogsPeerDownOnceAfterGracePeriod) {
  const auto log = [this](Duration length) {
    testing::internal::CaptureStderr();
    for (const Time end = now_ + length; now_ < end;) channel_.Tick(now_ += Milliseconds(100));
    return testing::internal::GetCapturedStderr();
  };
  Connect();
  channel_.Disconnected(now_);
  EXPECT_EQ(log(Milliseconds(1400)), "");
  channel_.Connected(now_);
  Welcome();
  EXPECT_EQ(log(Milliseconds(200)), "");
  channel_.Disconnected(now_);
  EXPECT_THAT(log(Milliseconds(1700)), testing::HasSubstr("the peer is down\n"));
  EXPECT_EQ(log(Milliseconds(3000)), "");
}

}  // namespace
}  // namespace troop
