#include <gtest/gtest.h>

#include "net/transport/sim_network.h"
#include "net/wire/codec.h"
#include "paramserver/protocol/messages.h"
#include "paramserver/weights/weights_client.h"
#include "paramserver/weights/weights_server.h"

namespace troop {
namespace {

constexpr std::int64_t kParameters = 1000;

WeightSnapshot MakeSnapshot(std::uint64_t version, std::int64_t parameters = kParameters) {
  MutableBuffer value(std::size_t(parameters) * 4);
  std::ranges::fill(value.as<float>(), float(version));
  return {version, std::move(value).Freeze()};
}

class ParameterServerTest : public testing::Test {
 protected:
  ParameterServerTest() : here_(hub_->MakeNetwork()) { Start(); }

  void Start(std::int64_t parameters = kParameters) {
    Stop();
    server_ = MakeWeightsServer({.parameters = parameters, .version_is_issued = issued_});
    there_ = hub_->MakeNetwork();
    listener_ = *there_->Listen("inproc://weights", server_.get());
  }
  void Stop() {
    listener_.reset();
    there_.reset();
    server_.reset();
  }
  std::unique_ptr<Channel> Connect(Role role, std::int32_t index = 0) {
    return *here_->Connect("inproc://weights",
                           {.origin = {.role = role, .index = index, .incarnation = 1}});
  }
  void Pump() {
    for (bool moved = true; moved;) {
      moved = here_->Pump(now_);
      if (there_) moved |= there_->Pump(now_);
    }
  }
  void Publish(WeightPublisher* publisher, WeightSnapshot snapshot) {
    publisher->Publish(std::move(snapshot));
    Pump();
    publisher->Poll(now_);
  }
  std::optional<WeightSnapshot> Pull(WeightSubscriber* subscriber) {
    subscriber->Request(now_);
    Pump();
    return subscriber->Poll(now_);
  }
  Result<Message> Call(Channel* channel, Message message) {
    const auto ticket = channel->Send(message, kForever);
    TROOP_CHECK(ticket.ok(), "{}", ticket.status().ToString());
    Pump();
    return *channel->Poll(*ticket);
  }
  Result<Message> PullExact(Channel* channel, std::uint64_t version) {
    return Call(channel, {.type = MessageType::kPull, .body = EncodeBody(PullBody{0, version})});
  }
  double Metric(std::string_view name) {
    Metrics metrics;
    server_->Report(&metrics);
    return metrics.Get(name);
  }

  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  std::function<bool(std::uint64_t)> issued_;
  std::unique_ptr<WeightsServer> server_;
  std::unique_ptr<Network> there_, here_;
  std::unique_ptr<Listener> listener_;
  Time now_{Seconds(1)};
};

TEST_F(ParameterServerTest, BertBaseWeightsFitOneMessage) {
  constexpr std::int64_t kBertBase = 109'483'778;
  Start(kBertBase);
  const auto publisher = MakeWeightPublisher(Connect(Role::kLearner));
  Publish(publisher.get(), MakeSnapshot(1, kBertBase));
  ASSERT_TRUE(publisher->error().ok()) << publisher->error().ToString();
  EXPECT_EQ(publisher->acked_version(), 1u);
  const auto subscriber = MakeWeightSubscriber(Connect(Role::kEvaluator));
  const auto pulled = Pull(subscriber.get());
  ASSERT_TRUE(pulled.has_value()) << subscriber->error().ToString();
  EXPECT_EQ(pulled->value.size(), std::size_t(kBertBase) * sizeof(float));
}

TEST_F(ParameterServerTest, PullsEachPublishedVersionOnce) {
  const auto publisher = MakeWeightPublisher(Connect(Role::kLearner));
  const auto subscriber = MakeWeightSubscriber(Connect(Role::kActor));
  EXPECT_FALSE(Pull(subscriber.get()).has_value());
  Publish(publisher.get(), MakeSnapshot(5));
  EXPECT_EQ(publisher->acked_version(), 5u);
  const auto snapshot = Pull(subscriber.get());
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->version, 5u);
  EXPECT_EQ(snapshot->value.as<float>()[999], 5);
  EXPECT_FALSE(Pull(subscriber.get()).has_value());
  EXPECT_EQ(subscriber->version(), 5u);
  EXPECT_EQ(Metric("paramserver/snapshots_sent"), 1);
  EXPECT_EQ(Metric("paramserver/pulls"), 3);
}

TEST_F(ParameterServerTest, AcknowledgesAndIgnoresOlderPublish) {
  const auto first = MakeWeightPublisher(Connect(Role::kLearner, 0));
  const auto second = MakeWeightPublisher(Connect(Role::kLearner, 1));
  Publish(first.get(), MakeSnapshot(9));
  Publish(second.get(), MakeSnapshot(8));
  EXPECT_EQ(second->acked_version(), 8u);
  EXPECT_TRUE(second->error().ok());
  EXPECT_EQ(server_->version(), 9u);
  EXPECT_EQ(Metric("paramserver/publishes_rejected_old"), 1);
}

// One publish of version 2^64 - 1 kept out all weights that followed, for good.
TEST_F(ParameterServerTest, RejectsImpossibleVersion) {
  issued_ = [](std::uint64_t incarnation) { return incarnation <= 7; };
  Start();
  const auto stranger = MakeWeightPublisher(Connect(Role::kActor));
  Publish(stranger.get(), MakeSnapshot(1));
  EXPECT_EQ(stranger->error().code(), Code::kInvalidArgument);
  const auto early = MakeWeightPublisher(Connect(Role::kLearner));
  early->Publish(MakeSnapshot(8ull << 32 | 1));
  here_->Pump(now_), there_->Pump(now_), here_->Pump(now_), there_->Pump(now_);
  EXPECT_EQ(server_->version(), 0u);
  const auto publisher = MakeWeightPublisher(Connect(Role::kLearner, 1));
  Publish(publisher.get(), MakeSnapshot(7ull << 32 | 5));
  EXPECT_EQ(server_->version(), 7ull << 32 | 5);
}

TEST_F(ParameterServerTest, KeepsNewestTwoVersions) {
  const auto publisher = MakeWeightPublisher(Connect(Role::kLearner));
  for (const std::uint64_t version : {1, 2, 3}) Publish(publisher.get(), MakeSnapshot(version));
  const auto channel = Connect(Role::kTool);
  for (const std::uint64_t version : {2, 3}) {
    const auto answer = PullExact(channel.get(), version);
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(DecodeBody<PullReplyBody>(answer->body)->version, version);
    float value = 0;
    std::memcpy(&value, answer->parts[0].data(), sizeof value);
    EXPECT_EQ(value, float(version));
  }
  const Status gone = PullExact(channel.get(), 1).status();
  EXPECT_EQ(gone.code(), Code::kNotFound);
  EXPECT_NE(gone.message().find("version 1 is not kept; available are 3 and 2"), std::string::npos);
}

TEST_F(ParameterServerTest, RejectsPublishOfWrongSizeWithBothSizes) {
  const auto publisher = MakeWeightPublisher(Connect(Role::kLearner));
  Publish(publisher.get(), MakeSnapshot(1, 999));
  EXPECT_EQ(publisher->error().code(), Code::kInvalidArgument);
  EXPECT_NE(publisher->error().message().find("3996 bytes"), std::string::npos);
  EXPECT_NE(publisher->error().message().find("1000 parameters = 4000 bytes"), std::string::npos);
  EXPECT_EQ(server_->version(), 0u);
  EXPECT_EQ(Metric("paramserver/rejected_requests"), 1);
}

TEST_F(ParameterServerTest, QueuesOnlyNewestPublishWhileOneIsInFlight) {
  const auto publisher = MakeWeightPublisher(Connect(Role::kLearner));
  for (std::uint64_t version = 1; version <= 10; ++version) {
    publisher->Publish(MakeSnapshot(version));
  }
  Pump();
  publisher->Poll(now_);
  EXPECT_EQ(publisher->acked_version(), 1u);
  Pump();
  publisher->Poll(now_);
  EXPECT_EQ(publisher->acked_version(), 10u);
  EXPECT_EQ(Metric("paramserver/publishes"), 2);
}

TEST_F(ParameterServerTest, SharesLargeSnapshotsWithoutCopying) {
  constexpr std::int64_t kLarge = 100000;
  Start(kLarge);
  const auto publisher = MakeWeightPublisher(Connect(Role::kLearner));
  Publish(publisher.get(), MakeSnapshot(1, kLarge));
  const auto a = MakeWeightSubscriber(Connect(Role::kActor, 0));
  const auto b = MakeWeightSubscriber(Connect(Role::kActor, 1));
  const auto from_a = Pull(a.get()), from_b = Pull(b.get());
  ASSERT_TRUE(from_a && from_b);
  EXPECT_EQ(from_a->value.data(), from_b->value.data());
}

TEST_F(ParameterServerTest, DoesNotRepeatPullInFlight) {
  const auto subscriber = MakeWeightSubscriber(Connect(Role::kActor));
  subscriber->Request(now_);
  EXPECT_TRUE(subscriber->requesting());
  subscriber->Request(now_);
  Pump();
  EXPECT_FALSE(subscriber->Poll(now_).has_value());
  EXPECT_FALSE(subscriber->requesting());
  EXPECT_EQ(Metric("paramserver/pulls"), 1);
}

TEST_F(ParameterServerTest, SubscriberVersionsNeverDecreaseAfterRestart) {
  const auto publisher = MakeWeightPublisher(Connect(Role::kLearner));
  const auto subscriber = MakeWeightSubscriber(Connect(Role::kActor));
  Publish(publisher.get(), MakeSnapshot(7));
  ASSERT_TRUE(Pull(subscriber.get()).has_value());
  Start();
  const auto settle = [this](auto step) {
    for (int i = 0; i < 20; ++i) {
      now_ += Milliseconds(200);
      Pump();
      step();
    }
  };
  subscriber->Request(now_);
  settle([&] { EXPECT_FALSE(subscriber->Poll(now_).has_value()); });
  EXPECT_FALSE(subscriber->requesting());
  EXPECT_EQ(subscriber->server_version(), 0u);
  publisher->Publish(MakeSnapshot(8));
  settle([&] { publisher->Poll(now_); });
  EXPECT_EQ(publisher->acked_version(), 8u);
  EXPECT_EQ(subscriber->version(), 7u);
  subscriber->Request(now_);
  std::optional<WeightSnapshot> snapshot;
  settle([&] {
    if (auto got = subscriber->Poll(now_)) snapshot = std::move(got);
  });
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->version, 8u);
}

TEST_F(ParameterServerTest, PublishSurvivesServerRestart) {
  const auto publisher = MakeWeightPublisher(Connect(Role::kLearner));
  Stop();
  publisher->Publish(MakeSnapshot(3));
  Pump();
  Start();
  for (int i = 0; i < 20; ++i) {
    now_ += Milliseconds(200);
    Pump();
    publisher->Poll(now_);
  }
  EXPECT_EQ(publisher->acked_version(), 3u);
  EXPECT_EQ(server_->version(), 3u);
}

// A server whose replies the test chooses: one that was disconnected, or that was reset.
class Scripted final : public Service {
 public:
  void Handle(Message message, Reply reply) override {
    ++calls;
    answer(message, reply);
  }
  std::function<void(const Message&, Reply&)> answer;
  int calls = 0;
};

TEST_F(ParameterServerTest, RetriesPublishReportedAsLost) {
  Stop();
  there_ = hub_->MakeNetwork();
  Scripted script;
  script.answer = [&script](const Message&, Reply& reply) {
    if (script.calls < 3) return reply.Fail(Unavailable("cut off"));
    reply.Send({.type = MessageType::kPublishReply, .body = EncodeBody(PublishReplyBody{4})});
  };
  listener_ = *there_->Listen("inproc://weights", &script);
  const auto publisher = MakeWeightPublisher(Connect(Role::kLearner));
  publisher->Publish(MakeSnapshot(4));
  for (int i = 0; i < 10 && publisher->acked_version() == 0; ++i) {
    Pump();
    publisher->Poll(now_);
  }
  EXPECT_EQ(publisher->acked_version(), 4u);
  EXPECT_EQ(script.calls, 3);
  EXPECT_TRUE(publisher->error().ok());
  listener_.reset();
}

TEST_F(ParameterServerTest, SubscriberIgnoresOlderSnapshots) {
  Stop();
  there_ = hub_->MakeNetwork();
  Scripted script;
  std::uint64_t version = 7;
  script.answer = [&version](const Message&, Reply& reply) {
    Message message{.type = MessageType::kPullReply,
                    .body = EncodeBody(PullReplyBody{version, version})};
    message.parts.push_back(MakeSnapshot(version).value);
    reply.Send(std::move(message));
  };
  listener_ = *there_->Listen("inproc://weights", &script);
  const auto subscriber = MakeWeightSubscriber(Connect(Role::kActor));
  EXPECT_TRUE(Pull(subscriber.get()).has_value());
  for (version = 5; version <= 7; ++version) {
    EXPECT_FALSE(Pull(subscriber.get()).has_value()) << version;
  }
  EXPECT_EQ(subscriber->version(), 7u);
  EXPECT_TRUE(Pull(subscriber.get()).has_value());  // 8
  listener_.reset();
}

TEST_F(ParameterServerTest, RejectsMalformedRequests) {
  const auto channel = Connect(Role::kTool);
  const auto code = [&](Message message) {
    return Call(channel.get(), std::move(message)).status().code();
  };
  EXPECT_EQ(code({.type = MessageType::kPull, .body = "?"}), Code::kDataLoss);
  EXPECT_EQ(code({.type = MessageType::kPublish, .body = "?"}), Code::kDataLoss);
  EXPECT_EQ(code({.type = MessageType::kInsert}), Code::kInvalidArgument);
  EXPECT_EQ(code({.type = MessageType::kPublish, .body = EncodeBody(PublishBody{1})}),
            Code::kInvalidArgument);
  Message zero{.type = MessageType::kPublish, .body = EncodeBody(PublishBody{0})};
  zero.parts.push_back(MakeSnapshot(1).value);
  EXPECT_EQ(code(std::move(zero)), Code::kInvalidArgument);
  EXPECT_EQ(Metric("paramserver/rejected_requests"), 5);
}

}  // namespace
}  // namespace troop
