// A coordinator that is requested to scale actors, learners and replay shards.
#include <gtest/gtest.h>

#include "net/error.h"
#include "tests/fleet/coordinator_world.h"

namespace troop {
namespace {

class CoordinatorFleetTest : public testing::Test {
 protected:
  class Sink final : public Reply::Sink {
   public:
    explicit Sink(std::optional<Message>* to) : to_(to) {}
    void Answer(Message message) override { *to_ = std::move(message); }

   private:
    std::optional<Message>* const to_;
  };

  static Config Small() {
    Config config = Budget(100'000, 3);
    config.replay.shards = 2;
    config.actor.envs = 4;
    return config;
  }
  void Scale(const std::string& role, std::int64_t count) {
    answer_.reset();
    world_.coordinator().Handle(
        {.type = MessageType::kScale, .body = EncodeBody(ScaleRequest{role, count})},
        Reply(std::make_unique<Sink>(&answer_)));
  }
  std::optional<ScaleReply> Done() {
    if (!answer_ || answer_->type != MessageType::kScaleReply) return std::nullopt;
    return *DecodeBody<ScaleReply>(answer_->body);
  }
  std::string Refusal() { return answer_ ? ErrorOf(*answer_).message() : std::string(); }
  HeartbeatReply Beat(Role role, std::int32_t index, std::uint64_t incarnation,
                      const HeartbeatRequest& beat = {}) {
    const auto reply = world_.Beat(role, index, incarnation, beat);
    EXPECT_TRUE(reply.ok()) << reply.status().ToString();
    world_.Advance(Milliseconds(60));
    return reply.ok() ? *reply : HeartbeatReply();
  }
  HeartbeatReply ActorBeat(const HeartbeatRequest& beat = {}) {
    return Beat(Role::kActor, 0, actor_, beat);
  }
  // Shards `stays_` and `goes_` have 500 and 400 items; the second has to leave.
  void ScaleToOneReplayShard() {
    actor_ = world_.Join(Role::kActor, 0);
    stays_ = world_.Join(Role::kReplay, 0);
    goes_ = world_.Join(Role::kReplay, 1);
    Beat(Role::kReplay, 0, stays_, Shard(500, 900));
    LeavingBeat();
    Scale("replay", 1);
  }
  HeartbeatReply LeavingBeat() { return Beat(Role::kReplay, 1, goes_, Shard(400, 800)); }
  static HeartbeatRequest Shard(double items, double inserts) {
    HeartbeatRequest beat{.endpoint = "inproc://shard"};
    beat.metrics["replay/items"].value = items;
    beat.metrics["replay/inserts"].value = inserts;
    return beat;
  }

  std::uint64_t actor_ = 0, stays_ = 0, goes_ = 0;  // incarnations
  std::optional<Message> answer_;                   // outlives the world, which answers at its end
  CoordinatorWorld world_{Small()};
};

TEST_F(CoordinatorFleetTest, ScalingActorsReassignsExplorationPlaces) {
  std::uint64_t own[5] = {world_.Join(Role::kActor, 0), world_.Join(Role::kActor, 1),
                          world_.Join(Role::kActor, 2)};
  EXPECT_FALSE(world_.Register(Role::kActor, 3).ok());
  Scale("actors", 5);
  EXPECT_FALSE(answer_);
  EXPECT_TRUE(world_.coordinator().Needs(Role::kActor, 4));
  own[3] = world_.Join(Role::kActor, 3);
  own[4] = world_.Join(Role::kActor, 4);
  world_.Advance(Milliseconds(60));
  ASSERT_TRUE(Done());
  EXPECT_EQ(Done()->before, 3);
  EXPECT_EQ(Done()->after, 5);
  const HeartbeatReply reply = Beat(Role::kActor, 4, own[4]);
  EXPECT_EQ(reply.place, 4);
  EXPECT_EQ(reply.places, 5);
  Scale("actors", 1);
  EXPECT_FALSE(world_.coordinator().Needs(Role::kActor, 1));
  for (std::int32_t i = 1; i < 5; ++i) {
    EXPECT_FALSE(Done());
    EXPECT_TRUE(Beat(Role::kActor, i, own[i]).stop);
    world_.coordinator().OnMemberExit(Role::kActor, i, kProcess);
    world_.Advance(Milliseconds(60));
  }
  EXPECT_TRUE(Done()) << Refusal();
  EXPECT_FALSE(Beat(Role::kActor, 0, own[0]).stop);
  EXPECT_EQ(Beat(Role::kActor, 0, own[0]).places, 1);
}

TEST_F(CoordinatorFleetTest, ScaledActorsSkipIndicesOfJoinedOnes) {
  EXPECT_EQ(world_.JoinAsActor(71)->index, 3);
  Scale("actors", 4);
  EXPECT_FALSE(world_.coordinator().Needs(Role::kActor, 3));
  EXPECT_TRUE(world_.coordinator().Needs(Role::kActor, 4));
  EXPECT_EQ(world_.JoinAsActor(72)->index, 5);
  const std::uint64_t own = world_.Join(Role::kActor, 4);
  const HeartbeatReply reply = Beat(Role::kActor, 4, own);
  EXPECT_EQ(reply.place, 3);
  EXPECT_EQ(reply.places, 6);
  EXPECT_FALSE(reply.stop);
}

TEST_F(CoordinatorFleetTest, NewReplayShardsServeOnceAllAreBound) {
  const std::uint64_t actor = world_.Join(Role::kActor, 0);
  const std::uint64_t first = world_.Join(Role::kReplay, 0), second = world_.Join(Role::kReplay, 1);
  Beat(Role::kReplay, 0, first, Shard(10, 10));
  Beat(Role::kReplay, 1, second, Shard(10, 10));
  Scale("replay", 3);
  const std::uint64_t third = world_.Join(Role::kReplay, 2);
  world_.Advance(Milliseconds(60));
  EXPECT_FALSE(Done());
  EXPECT_EQ(Beat(Role::kActor, 0, actor).fleet.replay, 2);
  Beat(Role::kReplay, 2, third, Shard(0, 0));
  ASSERT_TRUE(Done()) << Refusal();
  EXPECT_EQ(Beat(Role::kActor, 0, actor).fleet.replay, 3);
}

TEST_F(CoordinatorFleetTest, ReplayShardLeavesOnceItsItemsAreReplaced) {
  ScaleToOneReplayShard();
  world_.Advance(Milliseconds(60));
  EXPECT_TRUE(Done()) << Refusal();
  const HeartbeatReply reply = ActorBeat();
  EXPECT_EQ(reply.fleet.replay, 1);
  EXPECT_EQ(reply.fleet.replay_leaving, 1);
  Beat(Role::kReplay, 0, stays_, Shard(500, 1300));
  EXPECT_FALSE(LeavingBeat().stop) << "an actor has not moved";
  ActorBeat({.fleet_epoch = reply.fleet.epoch});
  EXPECT_TRUE(LeavingBeat().stop);
  EXPECT_FALSE(world_.coordinator().Needs(Role::kReplay, 1));
  EXPECT_EQ(ActorBeat().fleet.replay_leaving, 0);
}

TEST_F(CoordinatorFleetTest, KeepsReplayShardUntilItsItemsAreReplaced) {
  ScaleToOneReplayShard();
  const HeartbeatReply reply = ActorBeat();
  ActorBeat({.fleet_epoch = reply.fleet.epoch});
  Beat(Role::kReplay, 0, stays_, Shard(500, 1299));
  EXPECT_FALSE(LeavingBeat().stop);
  EXPECT_TRUE(world_.coordinator().Needs(Role::kReplay, 1));
}

TEST_F(CoordinatorFleetTest, HeartbeatReportsLearnerCount) {
  const std::uint64_t first = world_.Join(Role::kLearner, 0);
  EXPECT_EQ(Beat(Role::kLearner, 0, first).fleet.learners, 1);
  Scale("learners", 2);
  EXPECT_EQ(Beat(Role::kLearner, 0, first).fleet.learners, 2);
  const auto second = world_.Register(Role::kLearner, 1);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_NE(second->config_toml.find("learners = 2"), std::string::npos);
  world_.Advance(Milliseconds(60));
  ASSERT_TRUE(Done()) << Refusal();
  Scale("learners", 1);
  EXPECT_TRUE(Beat(Role::kLearner, 1, second->incarnation).stop);
  EXPECT_FALSE(Beat(Role::kLearner, 0, first).stop);
}

TEST_F(CoordinatorFleetTest, RejectsInvalidScaleRequestsInOneLine) {
  const auto refuses = [&](const std::string& role, std::int64_t count, const std::string& why) {
    Scale(role, count);
    EXPECT_NE(Refusal().find(why), std::string::npos) << Refusal();
    EXPECT_EQ(Refusal().find('\n'), std::string::npos);
    EXPECT_EQ(world_.coordinator().slots().counts().epoch, 1u);
  };
  refuses("actors", 0, "from 1 to 100000");
  refuses("replay", -1, "from 1 to");
  refuses("replay", 13, "13 shards for 12 environments");
  refuses("evaluator", 2, "evaluator can't be scaled");
  Scale("actors", 4);
  Scale("learners", 2);
  EXPECT_NE(Refusal().find("already scaling from 3 to 4 actors"), std::string::npos) << Refusal();
}

TEST_F(CoordinatorFleetTest, GivesUpReplayShardsThatDoNotStart) {
  Scale("replay", 3);
  world_.Advance(Seconds(51));
  EXPECT_NE(Refusal().find("gave up, 2 replay shards remain"), std::string::npos) << Refusal();
  EXPECT_FALSE(world_.coordinator().Needs(Role::kReplay, 2));
}

TEST_F(CoordinatorFleetTest, LargeFleetSendsHeartbeatsLessOften) {
  const std::uint64_t actor = world_.Join(Role::kActor, 0);
  EXPECT_LE(Beat(Role::kActor, 0, actor).heartbeat_every_ms, 250u);
  Scale("actors", 1000);
  EXPECT_EQ(Beat(Role::kActor, 0, actor).heartbeat_every_ms, 2000u);
}

}  // namespace
}  // namespace troop
