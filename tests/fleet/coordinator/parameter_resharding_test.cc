// A coordinator that is requested to reshard the parameters, message by message.
#include <gtest/gtest.h>

#include "core/base/version.h"
#include "core/storage/memory_storage.h"
#include "fleet/coordinator/coordinator.h"
#include "net/error.h"
#include "net/wire/codec.h"
#include "paramserver/replication/shard_snapshots.h"

namespace troop {
namespace {

Config Shards(std::int64_t shards) {
  Config config;
  config.learner.sync = LearnerSync::kParamServer;
  config.paramserver.shards = shards;
  return config;
}

class CoordinatorScaleTest : public testing::Test {
 protected:
  class Sink final : public Reply::Sink {
   public:
    explicit Sink(std::optional<Message>* to) : to_(to) {}
    void Answer(Message message) override { *to_ = std::move(message); }

   private:
    std::optional<Message>* const to_;
  };
  struct Player {
    Role role = Role::kNone;
    std::int32_t index = 0;
    std::uint64_t incarnation = 0;
    HeartbeatRequest beat;
  };

  void Begin(const Config& config) {
    auto made = Make(config);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    coordinator_ = std::move(*made);
  }
  Result<std::unique_ptr<Coordinator>> Make(const Config& config) {
    return Coordinator::Make(
        {.config = config, .run = run_.get(), .listen = [](Role, std::int32_t) {
           return std::string("inproc://any");
         }});
  }
  std::optional<Message> Ask(MessageType type, std::string body, const Origin& origin = {}) {
    std::optional<Message> answer;
    coordinator_->Handle({.type = type, .origin = origin, .body = std::move(body)},
                         Reply(std::make_unique<Sink>(&answer)));
    return answer;
  }
  Player Join(Role role, std::int32_t index) {
    const auto answer =
        Ask(MessageType::kRegister,
            EncodeBody(RegisterRequest{.role = role, .index = index, .version = kTroopVersion}));
    const auto reply = DecodeBody<RegisterReply>(answer->body);
    EXPECT_TRUE(reply.ok()) << ErrorOf(*answer).ToString();
    Player who{role, index, reply.ok() ? reply->incarnation : 0};
    if (role == Role::kParamServer) who.beat.endpoint = PeerName(role, index);
    return who;
  }
  HeartbeatReply Beat(const Player& who) {
    const auto answer = Ask(MessageType::kMemberHeartbeat, EncodeBody(who.beat),
                            {.role = who.role, .index = who.index, .incarnation = who.incarnation});
    const auto reply = DecodeBody<HeartbeatReply>(answer->body);
    EXPECT_TRUE(reply.ok()) << ErrorOf(*answer).ToString();
    now_ += Milliseconds(1);
    coordinator_->Step(now_);
    return reply.ok() ? *reply : HeartbeatReply();
  }
  void Scale(std::int64_t count, const std::string& role = "paramserver") {
    scaled_.reset();
    coordinator_->Handle(
        {.type = MessageType::kScale, .body = EncodeBody(ScaleRequest{role, count})},
        Reply(std::make_unique<Sink>(&scaled_)));
  }
  Status Refusal() {
    EXPECT_TRUE(scaled_.has_value());
    return scaled_ ? ErrorOf(*scaled_) : Status();
  }

  std::unique_ptr<Storage> run_ = MakeMemoryStorage();
  std::unique_ptr<Coordinator> coordinator_;
  std::optional<Message> scaled_;
  Time now_{Seconds(10)};
};

TEST_F(CoordinatorScaleTest, ReshardsOnceAllParticipantsConfirm) {
  Begin(Shards(1));
  Player zero = Join(Role::kParamServer, 0), learner = Join(Role::kLearner, 0);
  Beat(zero);
  EXPECT_EQ(Beat(zero).shards[0].primary, 0);
  EXPECT_FALSE(coordinator_->Needs(Role::kParamServer, 1));
  Scale(2);
  EXPECT_EQ(coordinator_->parameter_servers(), 2);
  EXPECT_TRUE(coordinator_->Needs(Role::kParamServer, 1));
  Player one = Join(Role::kParamServer, 1);
  Beat(one);
  const HeartbeatReply paused = Beat(learner);
  EXPECT_EQ(paused.shard_move.stage, ShardMoveStage::kPausing);
  EXPECT_EQ(paused.shard_epochs, (std::vector<ShardEpoch>{{1, 0}}));
  zero.beat.shard_move = one.beat.shard_move = learner.beat.shard_move = paused.shard_move.number;
  Beat(learner);
  EXPECT_EQ(Beat(zero).shard_move.stage, ShardMoveStage::kHandingOver);
  EXPECT_FALSE(scaled_);
  Beat(one);
  ASSERT_TRUE(scaled_);
  const auto reply = DecodeBody<ScaleReply>(scaled_->body);
  ASSERT_TRUE(reply.ok()) << Refusal().ToString();
  EXPECT_EQ(reply->before, 1);
  EXPECT_EQ(reply->after, 2);
  EXPECT_NEAR(double(reply->parameters_moved), double(reply->parameters) / 2, 16);
  EXPECT_EQ(Beat(learner).shards.size(), 2u);
  EXPECT_EQ(coordinator_->View().shard_epoch, 2u);

  Scale(1);
  EXPECT_EQ(coordinator_->View().shards_wanted, 1);
  EXPECT_FALSE(Beat(one).stop);
  learner.beat.shard_move = zero.beat.shard_move = Beat(learner).shard_move.number;
  Beat(learner);
  Beat(zero);
  EXPECT_TRUE(Beat(one).stop);
  EXPECT_FALSE(coordinator_->Needs(Role::kParamServer, 1));
  EXPECT_EQ(ReadShardEpochs(run_.get())->size(), 3u);
  // The next coordinator of the run continues from there.
  Begin(Shards(1));
  EXPECT_EQ(coordinator_->View().shard_epoch, 3u);
  EXPECT_EQ(coordinator_->parameter_servers(), 1);
  EXPECT_EQ(Make(Shards(2)).status().code(), Code::kInvalidArgument);
}

TEST_F(CoordinatorScaleTest, RejectsInvalidScaleRequestsInOneLine) {
  const auto refuses = [&](std::int64_t count, const std::string& role, std::string_view why) {
    Scale(count, role);
    EXPECT_NE(Refusal().message().find(why), std::string::npos) << Refusal().ToString();
  };
  Begin(Config());
  refuses(2, "paramserver", "no parameter shards");
  Begin(Shards(2));
  refuses(0, "paramserver", "from 1 to 1024");
  refuses(1025, "paramserver", "from 1 to 1024");
  refuses(2, "paramserver", "2 parameter shards already");
  refuses(3, "actor", "actor can't be scaled");
  Scale(3);
  EXPECT_FALSE(scaled_);
  const auto again = Ask(MessageType::kScale, EncodeBody(ScaleRequest{"paramserver", 4}));
  EXPECT_NE(ErrorOf(*again).message().find("retry when it has ended"), std::string::npos);
  coordinator_->Drain();
  coordinator_->Step(now_);
  EXPECT_EQ(Refusal().code(), Code::kAborted);  // the one under way
  refuses(4, "paramserver", "is ending");
  EXPECT_TRUE(ReadShardEpochs(run_.get())->empty());
}

}  // namespace
}  // namespace troop
