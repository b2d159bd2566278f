// A real channel and a real server on a link that can be cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/rpc/call_channel.h"
#include "net/rpc/call_server.h"
#include "tests/net/net_testing.h"

namespace troop {
namespace {

using Letters = std::deque<std::pair<Envelope, Message>>;

class PairChannel final : public CallChannel {
 public:
  explicit PairChannel(const NetworkOptions& network)
      : CallChannel("pair", ActorOptions(), network, 7, false) {}
  bool connected = false;
  int room = 1 << 20;  // letters that still find room
  Letters out;

 protected:
  bool Transmit(const Envelope& envelope, const Message& message) override {
    if (!connected || room == 0) return false;
    --room;
    out.emplace_back(envelope, message);
    return true;
  }
};

class PairServer final : public CallServer {
 public:
  PairServer(Service* service, const NetworkOptions& network)
      : CallServer(service, network, 1000) {}
  bool connected = false;
  int refusals = 0;
  Letters out;

 protected:
  SendResult Transmit(std::uint64_t, const Envelope& envelope, const Message& message) override {
    if (!connected) return SendResult::kGone;
    if (message.type == MessageType::kError) ++refusals;
    out.emplace_back(envelope, message);
    return SendResult::kSent;
  }
};

class CallPairTest : public testing::Test {
 protected:
  explicit CallPairTest(const NetworkOptions& network = {})
      : server_(std::make_shared<PairServer>(&echo_, network)), channel_(network) {
    Join();
  }

  void Join() {
    server_->connected = channel_.connected = true;
    channel_.Connected(now_);
  }
  void Cut() {
    server_->connected = channel_.connected = false;
    channel_.Disconnected(now_);
    channel_.out.clear();
    server_->out.clear();
    server_->Probe(now_);
  }
  void Run(Duration time) {
    for (const Time end = now_ + time; now_ < end; now_ += Milliseconds(10)) {
      channel_.Tick(now_);
      for (; !channel_.out.empty(); channel_.out.pop_front()) {
        auto& [envelope, message] = channel_.out.front();
        EXPECT_TRUE(server_->Receive(envelope, std::move(message), now_).ok());
      }
      server_->Tick(now_);
      for (; !server_->out.empty(); server_->out.pop_front()) {
        auto& [envelope, message] = server_->out.front();
        channel_.Receive(envelope, std::move(message), now_);
      }
    }
  }
  void BeForgotten() {
    Run(NetworkOptions{}.forget_after + Seconds(2));
    ASSERT_EQ(server_->clients(), 0u);
  }
  Ticket Send(std::string body) {
    Message message = TestMessage(std::move(body));
    return *channel_.Send(message, kForever);
  }

  EchoService echo_;
  std::shared_ptr<PairServer> server_;
  PairChannel channel_;
  Time now_ = Time(Seconds(100));
};

// Regression: the queued call kept the channel open in a session that the server had evicted, and
// each Hello was refused permanently.
TEST_F(CallPairTest, HandlesCallQueuedDuringEvictionAfterReturn) {
  Run(Seconds(1));
  echo_.park = true;
  const Ticket sent = Send("sent");
  Run(Seconds(1));
  Cut();
  const Ticket queued = Send("queued");
  BeForgotten();
  echo_.park = false;
  Join();
  Run(Seconds(2));
  EXPECT_EQ(server_->refusals, 1);
  EXPECT_EQ(channel_.Poll(sent)->status().code(), Code::kDeadlineExceeded);
  const std::optional<Result<Message>> answer = channel_.Poll(queued);
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->ok()) << answer->status().message();
  EXPECT_THAT(echo_.bodies, testing::ElementsAre("sent", "queued"));
}

// A call whose repeat found no room is queued again, but its first copy was handled.
TEST_F(CallPairTest, FailsCallAwaitingResendAfterEviction) {
  Run(Seconds(1));
  echo_.park = true;
  const Ticket sent = Send("sent");
  Run(Seconds(1));
  Cut();
  Run(Seconds(2));
  channel_.room = 1;  // for Hello alone
  Join();
  Run(Seconds(1));
  Cut();
  BeForgotten();
  channel_.room = 1 << 20;
  Join();
  Run(Seconds(2));
  EXPECT_EQ(channel_.Poll(sent)->status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(echo_.bodies, testing::ElementsAre("sent"));
}

TEST_F(CallPairTest, RepeatedRefusalsKeepQueuedCalls) {
  Run(Seconds(1));
  echo_.park = true;
  Send("a");
  Send("b");
  Run(Seconds(1));
  Cut();
  const Ticket queued = Send("queued");
  BeForgotten();
  echo_.park = false;
  Join();
  channel_.Tick(now_);
  channel_.Tick(now_ + Seconds(1));  // Hello again before the refusal is read
  EXPECT_EQ(channel_.out.size(), 2u);
  Run(Seconds(2));
  EXPECT_EQ(server_->refusals, 2);
  const std::optional<Result<Message>> answer = channel_.Poll(queued);
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->ok()) << answer->status().message();
}

class ImpatientPairTest : public CallPairTest {
 protected:
  ImpatientPairTest() : CallPairTest({.dead_after = Milliseconds(100)}) {}
};

// Beats came every 0.5 s whatever dead_after was.
TEST_F(ImpatientPairTest, KeepsIdlePeersUpWithShortTimeout) {
  Run(Seconds(0.2));
  for (int i = 0; i < 200; ++i) {
    Run(Milliseconds(10));
    ASSERT_EQ(channel_.peer(), PeerState::kUp);
  }
  EXPECT_EQ(echo_.changes.size(), 1u) << "the one that came";
}

}  // namespace
}  // namespace troop
