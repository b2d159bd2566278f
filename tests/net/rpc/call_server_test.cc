// Exactly-once, fencing and the bounds of memory, on a transport of the test's own.
#include "net/rpc/call_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/error.h"
#include "net/rpc/call_channel.h"
#include "tests/net/net_testing.h"

namespace troop {
namespace {

constexpr std::uint64_t kSession = 1000;

class FakeServer final : public CallServer {
 public:
  FakeServer(Service* service, const NetworkOptions& options)
      : CallServer(service, options, kSession) {}
  struct Out {
    std::uint64_t channel;
    Envelope envelope;
    Message message;
  };
  // Returns the messages sent since the last call, without beats.
  std::vector<Out> Take() {
    std::erase_if(out_, [](const Out& o) { return o.envelope.flags == kFlagHeartbeat; });
    return std::exchange(out_, {});
  }
  SendResult answer = SendResult::kSent;

 protected:
  SendResult Transmit(std::uint64_t channel, const Envelope& envelope,
                      const Message& message) override {
    if (answer == SendResult::kSent) out_.push_back({channel, envelope, message});
    return answer;
  }

 private:
  std::vector<Out> out_;
};

class CallServerTest : public testing::Test {
 protected:
  explicit CallServerTest(const NetworkOptions& options = {})
      : server_(std::make_shared<FakeServer>(&echo_, options)) {}

  Status Hello(std::uint64_t channel, Origin origin, std::uint64_t session = 0) {
    return server_->Receive({.flags = kFlagHello, .channel = channel, .session = session},
                            {.type = MessageType::kHeartbeat, .origin = origin}, now_);
  }
  Status Call(std::uint64_t channel, Origin origin, std::uint64_t sequence,
              std::uint64_t oldest_open, std::uint64_t session = kSession,
              std::uint16_t flags = kFlagCall) {
    Message message = TestMessage(std::to_string(sequence));
    message.origin = origin;
    message.origin.sequence = sequence;
    message.origin.oldest_open = oldest_open;
    return server_->Receive({.flags = flags, .channel = channel, .session = session},
                            std::move(message), now_);
  }
  static Origin Actor(std::int32_t index = 0, std::uint64_t incarnation = 1) {
    return {.role = Role::kActor, .index = index, .incarnation = incarnation, .oldest_open = 1};
  }
  void Admit(std::uint64_t channel, const Origin& origin) {
    ASSERT_TRUE(Hello(channel, origin).ok());
    const auto out = server_->Take();
    ASSERT_EQ(out.size(), 1u);
    ASSERT_EQ(out[0].envelope.flags, kFlagWelcome);
    ASSERT_EQ(out[0].envelope.session, kSession);
  }
  // The code of a refusal of the whole channel.
  Code TakeRefusal() {
    const auto out = server_->Take();
    if (out.size() != 1 || out[0].message.type != MessageType::kError ||
        out[0].message.origin.sequence != 0) {
      return Code::kOk;
    }
    return ErrorOf(out[0].message).code();
  }

  EchoService echo_;
  std::shared_ptr<FakeServer> server_;
  Time now_ = Time(Seconds(100));
};

TEST_F(CallServerTest, ChecksumsReplyPartsIfCallDid) {
  Admit(1, Actor(1));
  Admit(2, Actor(2));
  ASSERT_TRUE(Call(1, Actor(1), 1, 1, kSession, kFlagCall | kFlagPartsChecked).ok());
  ASSERT_TRUE(Call(2, Actor(2), 1, 1).ok());
  const auto out = server_->Take();
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].envelope.flags, kFlagReply | kFlagPartsChecked);
  EXPECT_EQ(out[1].envelope.flags, kFlagReply);
}

TEST_F(CallServerTest, AnswersRepeatedCallFromReplyMemory) {
  Admit(1, Actor());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Call(1, Actor(), 1, 1).ok());
  EXPECT_EQ(echo_.handled.size(), 1u);
  const auto out = server_->Take();
  ASSERT_EQ(out.size(), 3u);
  for (const auto& o : out) {
    EXPECT_EQ(o.message.body, "1");
    EXPECT_EQ(o.message.origin.sequence, 1u);
  }
}

TEST_F(CallServerTest, DoesNotHandleRepeatOfParkedCall) {
  echo_.park = true;
  Admit(1, Actor());
  ASSERT_TRUE(Call(1, Actor(), 1, 1).ok());
  ASSERT_TRUE(Hello(1, Actor(), kSession).ok());  // the client came back
  ASSERT_TRUE(Call(1, Actor(), 1, 1).ok());
  EXPECT_EQ(echo_.parked.size(), 1u);
  server_->Take();
  echo_.parked[0].second.Send(TestMessage("answer"));
  EXPECT_EQ(server_->Take().at(0).message.body, "answer");
}

TEST_F(CallServerTest, DropsConfirmedCallAndIgnoresLateRepeat) {
  Admit(1, Actor());
  ASSERT_TRUE(Call(1, Actor(), 1, 1).ok());
  EXPECT_GT(server_->reply_memory(), 0u);
  const std::size_t one = server_->reply_memory();
  ASSERT_TRUE(Call(1, Actor(), 2, 2).ok());
  EXPECT_EQ(server_->reply_memory(), one);
  server_->Take();
  ASSERT_TRUE(Call(1, Actor(), 1, 1).ok());
  EXPECT_TRUE(server_->Take().empty());
  EXPECT_EQ(echo_.handled.size(), 2u);
}

TEST_F(CallServerTest, HeartbeatConfirmsReplies) {
  Admit(1, Actor());
  ASSERT_TRUE(Call(1, Actor(), 1, 1).ok());
  Origin origin = Actor();
  origin.oldest_open = 2;
  ASSERT_TRUE(server_
                  ->Receive({.flags = kFlagHeartbeat, .channel = 1, .session = kSession},
                            {.type = MessageType::kHeartbeat, .origin = origin}, now_)
                  .ok());
  EXPECT_EQ(server_->reply_memory(), 0u);
}

TEST_F(CallServerTest, AcceptsCallsWithGapsAndOutOfOrder) {
  Admit(1, Actor());
  for (const std::uint64_t sequence : {5, 2, 3, 5, 2}) {
    ASSERT_TRUE(Call(1, Actor(), sequence, 1).ok());
  }
  EXPECT_THAT(echo_.bodies, testing::ElementsAre("5", "2", "3"));
}

TEST_F(CallServerTest, WelcomesUnknownSessionWithoutHandlingItsCall) {
  ASSERT_TRUE(Call(1, Actor(), 1, 1, /*session=*/0).ok());
  ASSERT_TRUE(Call(2, Actor(), 1, 1, /*session=*/999).ok());  // of a server before this one
  EXPECT_TRUE(echo_.handled.empty());
  const auto out = server_->Take();
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].envelope.flags, kFlagWelcome);
  EXPECT_EQ(out[1].envelope.flags, kFlagWelcome);
  ASSERT_TRUE(Call(2, Actor(), 1, 1).ok());
  EXPECT_EQ(echo_.handled.size(), 1u);
  // One that says so on a channel that is welcome already.
  ASSERT_TRUE(Call(2, Actor(), 2, 1, /*session=*/999).ok());
  EXPECT_EQ(echo_.handled.size(), 1u);
}

TEST_F(CallServerTest, RejectsImpossibleSequenceNumbers) {
  Admit(1, Actor());
  EXPECT_EQ(Call(1, Actor(), 0, 0).code(), Code::kDataLoss);
  EXPECT_EQ(Call(1, Actor(), 1, 0).code(), Code::kDataLoss);
  EXPECT_EQ(Call(1, Actor(), 1, 2).code(), Code::kDataLoss);
  EXPECT_EQ(Call(1, Actor(), kSequenceSpanMax + 1, 1).code(), Code::kDataLoss);
  EXPECT_EQ(Call(1, Actor(), ~std::uint64_t{0}, 1).code(), Code::kDataLoss);
  EXPECT_TRUE(Call(1, Actor(), kSequenceSpanMax, 1).ok());
  EXPECT_EQ(echo_.handled.size(), 1u);
}

TEST_F(CallServerTest, RejectsOtherOriginOnSameChannel) {
  Admit(1, Actor(1));
  EXPECT_EQ(Call(1, Actor(2), 1, 1).code(), Code::kDataLoss);
  EXPECT_EQ(Call(1, Actor(1, 2), 1, 1).code(), Code::kDataLoss);
}

TEST_F(CallServerTest, NewIncarnationFencesOlderAndItsParkedCalls) {
  echo_.park = true;
  Admit(1, Actor(0, 5));
  ASSERT_TRUE(Call(1, Actor(0, 5), 1, 1).ok());
  ASSERT_TRUE(Hello(2, Actor(0, 6)).ok());
  const auto out = server_->Take();
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(ErrorOf(out[0].message).code(), Code::kAborted);
  EXPECT_EQ(out[0].channel, 1u);
  EXPECT_EQ(out[1].envelope.flags, kFlagWelcome);
  echo_.parked[0].second.Send(TestMessage("void"));
  EXPECT_TRUE(server_->Take().empty());
  ASSERT_TRUE(Call(1, Actor(0, 5), 2, 1).ok());
  ASSERT_TRUE(Hello(3, Actor(0, 4)).ok());
  for (const auto& o : server_->Take()) EXPECT_EQ(o.message.type, MessageType::kError);
  EXPECT_EQ(echo_.handled.size(), 1u);
  ASSERT_EQ(echo_.changes.size(), 3u);  // 5 up, 5 down, 6 up
  EXPECT_EQ(echo_.changes[1].first.incarnation, 5u);
  EXPECT_EQ(echo_.changes[1].second, PeerState::kDown);
  EXPECT_EQ(echo_.changes[2].first.incarnation, 6u);
}

// A Hello with an invented number fenced a role for good: no restart gave it a larger one.
TEST_F(CallServerTest, RefusedIncarnationFencesNothing) {
  echo_.issued = 5;
  Admit(1, Actor(0, 5));
  ASSERT_TRUE(Hello(2, Actor(0, ~std::uint64_t{0})).ok());
  EXPECT_EQ(TakeRefusal(), Code::kUnavailable);
  Origin forged = Actor(0, 6);
  ASSERT_TRUE(Call(3, forged, 1, 1, 0).ok());
  EXPECT_EQ(TakeRefusal(), Code::kUnavailable);
  EXPECT_TRUE(echo_.handled.empty());
  ASSERT_TRUE(Call(1, Actor(0, 5), 1, 1).ok());
  EXPECT_EQ(server_->Take().at(0).message.body, "1");
  echo_.issued = 6;
  ASSERT_TRUE(Hello(3, Actor(0, 6)).ok());
  EXPECT_EQ(server_->Take().back().envelope.flags, kFlagWelcome);
  ASSERT_TRUE(Call(1, Actor(0, 5), 2, 2).ok());
  EXPECT_EQ(echo_.handled.size(), 1u) << "fenced by the one that was issued";
}

TEST_F(CallServerTest, ToolsDoNotFenceEachOther) {
  const auto tool = [](std::uint64_t incarnation) {
    return Origin{.role = Role::kTool, .index = 7, .incarnation = incarnation, .oldest_open = 1};
  };
  Admit(1, tool(1));
  Admit(2, tool(~std::uint64_t{0}));
  Admit(3, tool(1));
  for (const std::uint64_t channel : {1, 2, 3}) {
    ASSERT_TRUE(Call(channel, tool(channel == 2 ? ~std::uint64_t{0} : 1), 1, 1).ok());
    EXPECT_EQ(server_->Take().at(0).message.body, "1");
  }
}

TEST_F(CallServerTest, SendsQueuedRepliesInOrderOnceThereIsRoom) {
  Admit(1, Actor());
  server_->answer = SendResult::kFull;
  for (std::uint64_t s = 1; s <= 3; ++s) ASSERT_TRUE(Call(1, Actor(), s, 1).ok());
  server_->Tick(now_);
  EXPECT_LE(server_->next_tick() - now_, Milliseconds(1));
  server_->answer = SendResult::kSent;
  EXPECT_TRUE(server_->Tick(now_));
  const auto out = server_->Take();
  ASSERT_EQ(out.size(), 3u);
  for (std::uint64_t s = 1; s <= 3; ++s) EXPECT_EQ(out[s - 1].message.origin.sequence, s);
}

TEST_F(CallServerTest, KeepsReplyForDisconnectedClient) {
  echo_.park = true;
  Admit(1, Actor());
  ASSERT_TRUE(Call(1, Actor(), 1, 1).ok());
  server_->answer = SendResult::kGone;
  echo_.parked[0].second.Send(TestMessage("answer"));
  server_->answer = SendResult::kSent;
  ASSERT_TRUE(Hello(1, Actor(), kSession).ok());
  server_->Take();
  ASSERT_TRUE(Call(1, Actor(), 1, 1).ok());
  EXPECT_EQ(server_->Take().at(0).message.body, "answer");
  EXPECT_EQ(echo_.handled.size(), 1u);
}

TEST_F(CallServerTest, ReportsSilentClientHungAndDisconnectedOneDown) {
  Admit(1, Actor(1));
  Admit(2, Actor(2));
  for (int i = 0; i < 20; ++i) {
    now_ += Milliseconds(100);
    ASSERT_TRUE(server_
                    ->Receive({.flags = kFlagHeartbeat, .channel = 2, .session = kSession},
                              {.type = MessageType::kHeartbeat, .origin = Actor(2)}, now_)
                    .ok());
    server_->Tick(now_);
  }
  EXPECT_TRUE(echo_.Saw(1, PeerState::kHung));
  EXPECT_FALSE(echo_.Saw(2, PeerState::kHung));
  server_->answer = SendResult::kGone;
  server_->Probe(now_);
  EXPECT_TRUE(echo_.Saw(1, PeerState::kDown));
  EXPECT_TRUE(echo_.Saw(2, PeerState::kDown));
}

TEST_F(CallServerTest, DoesNotReportClientHungAfterServerPause) {
  Admit(1, Actor(1));
  server_->Tick(now_);
  now_ += Seconds(30);
  server_->Tick(now_);
  EXPECT_FALSE(echo_.Saw(1, PeerState::kHung));
}

TEST_F(CallServerTest, RefusesEvictedClientOnlyWithOpenCalls) {
  Admit(1, Actor(1));
  ASSERT_TRUE(Call(1, Actor(1), 1, 1).ok());
  server_->answer = SendResult::kGone;
  server_->Probe(now_);
  for (int i = 0; i < 700; ++i) server_->Tick(now_ += Milliseconds(100));
  EXPECT_EQ(server_->clients(), 0u);
  EXPECT_EQ(server_->reply_memory(), 0u);
  server_->answer = SendResult::kSent;
  server_->Take();

  Origin open = Actor(1);
  open.sequence = 1;
  ASSERT_TRUE(Hello(1, open, kSession).ok());
  EXPECT_EQ(TakeRefusal(), Code::kDeadlineExceeded);
  ASSERT_TRUE(Call(1, Actor(1), 1, 1).ok());
  EXPECT_EQ(TakeRefusal(), Code::kDeadlineExceeded);
  EXPECT_EQ(echo_.handled.size(), 1u) << "it may not be handled twice";

  Origin nothing_open = Actor(1);
  nothing_open.sequence = 1;
  nothing_open.oldest_open = 2;
  ASSERT_TRUE(Hello(1, nothing_open, kSession).ok());
  EXPECT_EQ(server_->Take().at(0).envelope.flags, kFlagWelcome);
  ASSERT_TRUE(Call(1, Actor(1), 2, 2).ok());
  EXPECT_EQ(echo_.handled.size(), 2u);
}

class SmallCallServerTest : public CallServerTest {
 protected:
  SmallCallServerTest() : CallServerTest({.reply_memory_bytes = 10'000, .clients_max = 2}) {}
};

TEST_F(SmallCallServerTest, DropsOldestRepliesWhenMemoryIsFull) {
  echo_.park = true;
  Admit(1, Actor());
  for (std::uint64_t s = 1; s <= 5; ++s) ASSERT_TRUE(Call(1, Actor(), s, 1).ok());
  for (auto& [message, reply] : echo_.parked) {
    reply.Send(TestMessage("", {TestBytes(3000)}));
    EXPECT_LE(server_->reply_memory(), 10'000u);
  }
  server_->Take();
  ASSERT_TRUE(Call(1, Actor(), 1, 1).ok());
  ASSERT_TRUE(Call(1, Actor(), 5, 1).ok());
  const auto out = server_->Take();
  ASSERT_EQ(out.size(), 2u);
  // Was kDataLoss, which ends a sampler or writer instead of making it ask again.
  EXPECT_EQ(ErrorOf(out[0].message).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(out[1].message.parts.size(), 1u);
  EXPECT_EQ(echo_.handled.size(), 5u);
}

TEST_F(SmallCallServerTest, LimitsClientsAndReplacesDownOnes) {
  Admit(1, Actor(1));
  Admit(2, Actor(2));
  ASSERT_TRUE(Hello(3, Actor(3)).ok());
  EXPECT_EQ(TakeRefusal(), Code::kResourceExhausted);
  ASSERT_TRUE(server_
                  ->Receive({.flags = kFlagGoodbye, .channel = 1, .session = kSession},
                            {.type = MessageType::kHeartbeat, .origin = Actor(1)}, now_)
                  .ok());
  Admit(3, Actor(3));
  server_->answer = SendResult::kGone;
  server_->Probe(now_);
  server_->answer = SendResult::kSent;
  server_->Take();
  Admit(4, Actor(4));
  EXPECT_EQ(server_->clients(), 2u);
}

}  // namespace
}  // namespace troop
