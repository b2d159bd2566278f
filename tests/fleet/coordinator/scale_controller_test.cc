#include "fleet/coordinator/scale_controller.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "net/error.h"
#include "net/wire/codec.h"
#include "tests/fleet/supervised_run_config.h"

namespace troop {
namespace {

Config Small() {
  Config config;
  config.fleet.actors = 2;
  config.replay.shards = 2;
  config.actor.envs = 4;
  return config;
}

class Sink final : public Reply::Sink {
 public:
  explicit Sink(std::optional<Message>* to) : to_(to) {}
  void Answer(Message message) override { *to_ = std::move(message); }

 private:
  std::optional<Message>* const to_;
};

// A scaled fleet, whose members the test plays.
class ScaleControllerTest : public testing::Test {
 protected:
  explicit ScaleControllerTest(Config config = Small()) : config_(std::move(config)) {
    Admit(Role::kActor, 0);
    Admit(Role::kActor, 1);
    Admit(Role::kReplay, 0, "tcp://a");
    Admit(Role::kReplay, 1, "tcp://b");
  }
  ScaleController::FleetState State() const {
    return {.members = members_, .running = running_, .now = now_};
  }
  void Admit(Role role, std::int32_t index, const std::string& endpoint = "", bool joined = false) {
    members_.Admit({.role = role, .index = index, .incarnation = ++incarnation_}, "", joined, now_);
    Beat(role, index, {.endpoint = endpoint});
  }
  void Beat(Role role, std::int32_t index, HeartbeatRequest beat) {
    members_.RecordHeartbeat(members_.Find(role, index), &beat, now_);
  }
  void BeatOfShard(std::int32_t index, double items, double inserts) {
    HeartbeatRequest beat{.endpoint = "tcp://any"};
    beat.metrics["replay/items"].value = items;
    beat.metrics["replay/inserts"].value = inserts;
    Beat(Role::kReplay, index, std::move(beat));
  }
  Status Begin(const std::string& name, std::int64_t count) {
    const ScaleRequest request{name, count};
    TROOP_RETURN_IF_ERROR(scaling_.Begin(*ScaledRole(name), request, State()));
    answer_.reset();
    scaling_.Await(Reply(std::make_unique<Sink>(&answer_)));
    return Status::Ok();
  }
  void Advance(Duration time) {
    now_ += time;
    scaling_.Update(State());
  }
  bool Succeeded() const { return answer_ && answer_->type == MessageType::kScaleReply; }
  std::string Failure() const { return answer_ ? ErrorOf(*answer_).message() : ""; }

  std::optional<Message> answer_;  // outlives the controller, which answers at its end
  const Config config_;
  Membership members_{{.silence_max = Seconds(5)}};
  Status room_;
  ScaleController scaling_{&config_, [this](const Config&) { return room_; }};
  bool running_ = true;
  Time now_{Seconds(10)};
  std::uint64_t incarnation_ = 0;
};

TEST_F(ScaleControllerTest, ChangeEndsWhenNewRolesHaveJoined) {
  ASSERT_TRUE(Begin("actors", 3).ok());
  EXPECT_EQ(scaling_.slots().actors().size(), 3u);
  Advance(Milliseconds(60));
  EXPECT_FALSE(answer_);
  Admit(Role::kActor, 2);
  Advance(Milliseconds(40));
  EXPECT_FALSE(answer_) << "the next look comes later";
  Advance(Milliseconds(10));
  EXPECT_TRUE(Succeeded());
  EXPECT_TRUE(Begin("actors", 3).ok()) << "no change is pending";
}

TEST_F(ScaleControllerTest, ChangeEndsWhenRemovedRolesHaveLeft) {
  ASSERT_TRUE(Begin("actors", 1).ok());
  Advance(Milliseconds(60));
  EXPECT_FALSE(answer_);
  members_.Remove(Role::kActor, 1, 0);
  Advance(Milliseconds(60));
  EXPECT_TRUE(Succeeded());
}

TEST_F(ScaleControllerTest, ExternalActorsNeitherFillSlotsNorHoldUpChange) {
  Admit(Role::kActor, 2, "", true);
  ASSERT_TRUE(Begin("actors", 3).ok());
  EXPECT_EQ(scaling_.slots().actors(), (std::vector<std::int32_t>{0, 1, 3}));
  Advance(Milliseconds(60));
  EXPECT_FALSE(answer_);
  Admit(Role::kActor, 3);
  Advance(Milliseconds(60));
  EXPECT_TRUE(Succeeded());
}

TEST_F(ScaleControllerTest, NewShardsTakeInsertsOnceAllAreBound) {
  ASSERT_TRUE(Begin("replay", 3).ok());
  EXPECT_EQ(scaling_.slots().counts().replay, 2);
  Admit(Role::kReplay, 2);
  Advance(Milliseconds(60));
  EXPECT_FALSE(answer_) << "it is not bound";
  BeatOfShard(2, 0, 0);
  Advance(Milliseconds(60));
  EXPECT_TRUE(Succeeded());
  EXPECT_EQ(scaling_.slots().counts().replay, 3);
}

TEST_F(ScaleControllerTest, ShardLeavesAfterItsItemsAndActors) {
  BeatOfShard(0, 500, 900);
  BeatOfShard(1, 400, 800);
  ASSERT_TRUE(Begin("replay", 1).ok());
  Advance(Milliseconds(60));
  EXPECT_TRUE(Succeeded()) << "draining continues in the background";
  BeatOfShard(0, 500, 1300);
  Advance(Milliseconds(60));
  EXPECT_EQ(scaling_.slots().replay(), 2) << "no actor has confirmed the epoch";
  const std::uint64_t epoch = scaling_.slots().counts().epoch;
  Beat(Role::kActor, 0, {.fleet_epoch = epoch});
  Advance(Milliseconds(60));
  EXPECT_EQ(scaling_.slots().replay(), 2);
  Beat(Role::kActor, 1, {.finished = true});
  Advance(Milliseconds(60));
  EXPECT_EQ(scaling_.slots().replay(), 1);
}

TEST_F(ScaleControllerTest, ChangeFailsAfterTimeLimit) {
  ASSERT_TRUE(Begin("replay", 3).ok());
  Advance(Seconds(50));
  EXPECT_FALSE(answer_);
  Advance(Seconds(1));
  EXPECT_NE(Failure().find("gave up, 2 replay shards remain"), std::string::npos) << Failure();
  EXPECT_EQ(scaling_.slots().replay(), 2);
  ASSERT_TRUE(Begin("actors", 3).ok());
  Advance(Seconds(51));
  EXPECT_NE(Failure().find("2 of 3 actors joined"), std::string::npos) << Failure();
  EXPECT_EQ(scaling_.slots().actors().size(), 3u) << "the third may still join";
}

TEST_F(ScaleControllerTest, ChangeFailsWhenRunEnds) {
  ASSERT_TRUE(Begin("learners", 2).ok());
  running_ = false;
  Advance(Milliseconds(60));
  EXPECT_EQ(Failure(), "the run ended first");
  EXPECT_EQ(Begin("actors", 3).code(), Code::kFailedPrecondition);
}

TEST_F(ScaleControllerTest, RefusedRequestsChangeNothing) {
  EXPECT_EQ(Begin("actors", 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(Begin("actors", 100'001).code(), Code::kInvalidArgument);
  EXPECT_EQ(Begin("replay", 9).code(), Code::kInvalidArgument) << "9 shards for 8 environments";
  room_ = ResourceExhausted("2 GiB are missing");
  EXPECT_EQ(Begin("actors", 3).message(), "actors=3: 2 GiB are missing");
  room_ = Status::Ok();
  EXPECT_EQ(scaling_.slots().counts().epoch, 1u);
  ASSERT_TRUE(Begin("actors", 3).ok());
  EXPECT_EQ(Begin("learners", 2).message(),
            "already scaling from 2 to 3 actors; wait until that is done");
}

TEST_F(ScaleControllerTest, ConfigFollowsSlotsExceptCapacityPerShard) {
  ASSERT_TRUE(Begin("replay", 3).ok());
  Admit(Role::kReplay, 2, "tcp://c");
  Advance(Milliseconds(60));
  ASSERT_TRUE(Begin("actors", 5).ok());
  EXPECT_EQ(scaling_.LiveConfig().replay.shards, 3);
  EXPECT_EQ(scaling_.LiveConfig().fleet.actors, 5);
  EXPECT_EQ(scaling_.ConfigFor(Role::kActor).replay.shards, 3);
  EXPECT_EQ(scaling_.ConfigFor(Role::kReplay).replay.shards, 2) << "that of the start";
}

TEST_F(ScaleControllerTest, ReplyHasPlaceOfActorAndStopsMembersWithoutSlot) {
  Admit(Role::kActor, 7, "", true);
  ASSERT_TRUE(Begin("actors", 1).ok());
  const auto reply = [&](Role role, std::int32_t index) {
    HeartbeatReply reply;
    scaling_.FillReply(*members_.Find(role, index), members_, &reply);
    return reply;
  };
  EXPECT_EQ(reply(Role::kActor, 0).place, 0);
  EXPECT_EQ(reply(Role::kActor, 0).places, 2);
  EXPECT_EQ(reply(Role::kActor, 0).heartbeat_every_ms, 4u);
  EXPECT_FALSE(reply(Role::kActor, 0).stop);
  EXPECT_TRUE(reply(Role::kActor, 1).stop);
  EXPECT_EQ(reply(Role::kActor, 7).place, 1);
  EXPECT_FALSE(reply(Role::kActor, 7).stop) << "external actors have no slots";
  EXPECT_EQ(reply(Role::kReplay, 0).places, 0);
  EXPECT_EQ(reply(Role::kReplay, 0).fleet, scaling_.slots().counts());
}

class SupervisedScaleTest : public ScaleControllerTest {
 protected:
  SupervisedScaleTest() : ScaleControllerTest(test::SupervisedRunConfig("bert")) {}
};

TEST_F(SupervisedScaleTest, RefusesToScale) {
  EXPECT_NE(Begin("learners", 2).message().find("a supervised run can't be scaled"),
            std::string::npos);
}

}  // namespace
}  // namespace troop
