// External actors: which ones are admitted, under which index, and when a member counts as lost.
#include <gmock/gmock.h>

#include <optional>

#include "net/error.h"
#include "tests/fleet/coordinator_world.h"

namespace troop {
namespace {

using testing::HasSubstr;

// A call that came with a key of this role, as a socket would hand it over.
Status AnswerTo(Coordinator* coordinator, Message message, Role key) {
  struct Sink final : Reply::Sink {
    explicit Sink(std::optional<Message>* to) : to(to) {}
    void Answer(Message answer) override { *to = std::move(answer); }
    std::optional<Message>* to;
  };
  std::optional<Message> answer;
  message.key = key;
  coordinator->Handle(std::move(message), Reply(std::make_unique<Sink>(&answer)));
  TROOP_CHECK(answer.has_value(), "no answer");
  return answer->type == MessageType::kError ? ErrorOf(*answer) : Status::Ok();
}
Status RegisterWith(Coordinator* coordinator, Role role, Role key, std::int32_t index = 0) {
  const RegisterRequest request{.role = role, .index = index, .version = kTroopVersion};
  return AnswerTo(coordinator, {.type = MessageType::kRegister, .body = EncodeBody(request)}, key);
}
Status JoinWith(Coordinator* coordinator, const JoinRequest& request, Role key = Role::kNone) {
  return AnswerTo(coordinator, {.type = MessageType::kJoin, .body = EncodeBody(request)}, key);
}

TEST(CoordinatorJoinTest, AssignsJoinedActorsIndicesAfterOwnActors) {
  CoordinatorWorld world(Budget(1000, 2));
  world.Join(Role::kActor, 0);
  EXPECT_EQ(world.JoinAsActor(10)->index, 2);
  EXPECT_EQ(world.JoinAsActor(11)->index, 3);
  EXPECT_EQ(world.JoinAsActor(12)->index, 4);
  world.coordinator().OnMemberExit(Role::kActor, 3, 11);
  EXPECT_EQ(world.JoinAsActor(13)->index, 3) << "the free slot";
  EXPECT_EQ(world.JoinAsActor(14)->index, 5);
  EXPECT_FALSE(world.Register(Role::kActor, 2).ok()) << "an external actor cannot choose its index";
}

TEST(CoordinatorJoinTest, ExplorationPlacesCoverAllActors) {
  CoordinatorWorld world(Budget(100000, 2));
  const std::uint64_t own = world.Join(Role::kActor, 1);
  const auto place = [&](std::int32_t index, std::uint64_t incarnation) {
    const HeartbeatReply reply = world.ActorBeat(index, incarnation, 0, 0);
    return std::pair(reply.place, reply.places);
  };
  EXPECT_EQ(place(1, own), std::pair(1, 2));
  const auto a = world.JoinAsActor(10), b = world.JoinAsActor(11), c = world.JoinAsActor(12);
  EXPECT_EQ(place(1, own), std::pair(1, 5));
  EXPECT_EQ(place(2, a->incarnation), std::pair(2, 5));
  EXPECT_EQ(place(4, c->incarnation), std::pair(4, 5));
  world.coordinator().OnMemberExit(Role::kActor, 2, 10);
  EXPECT_EQ(place(1, own), std::pair(1, 4));
  EXPECT_EQ(place(3, b->incarnation), std::pair(2, 4)) << "no gap stays";
  EXPECT_EQ(place(4, c->incarnation), std::pair(3, 4));
  const auto learner = world.Beat(Role::kLearner, 0, world.Join(Role::kLearner, 0));
  EXPECT_EQ(learner->places, 0);
}

TEST(CoordinatorJoinTest, LostConnectionRemovesMemberAndRegrantsSteps) {
  CoordinatorWorld world(Budget(1000, 1));
  const std::uint64_t own = world.Join(Role::kActor, 0);
  const auto joined = world.JoinAsActor(10);
  world.ActorBeat(1, joined->incarnation, 0, 800);
  EXPECT_EQ(world.ActorBeat(0, own, 0, 1000).steps_granted, 200);
  const Origin origin{.role = Role::kActor, .index = 1, .incarnation = joined->incarnation};
  world.Advance(Milliseconds(1));
  world.coordinator().PeerChanged(origin, PeerState::kDown);
  world.Advance(Milliseconds(900));
  world.Advance(Milliseconds(900));
  world.Advance(Milliseconds(900));
  EXPECT_EQ(world.ActorBeat(0, own, 0, 1000).steps_granted, 200) << "it may be back soon";
  world.Advance(Milliseconds(900));
  EXPECT_EQ(world.ActorBeat(0, own, 0, 1000).steps_granted, 1000);
  // The network heals after the lease expired: the member is notified that it was removed.
  const auto late = world.Beat(Role::kActor, 1, joined->incarnation);
  EXPECT_EQ(late.status().code(), Code::kAborted);
}

TEST(CoordinatorJoinTest, KeepsMemberThatReconnectsInTime) {
  CoordinatorWorld world(Budget(1000, 1));
  const auto joined = world.JoinAsActor(10);
  const Origin origin{.role = Role::kActor, .index = 1, .incarnation = joined->incarnation};
  world.Advance(Milliseconds(1));
  world.coordinator().PeerChanged(origin, PeerState::kDown);
  world.Advance(Milliseconds(900));
  world.coordinator().PeerChanged(origin, PeerState::kUp);
  for (int i = 0; i < 10; ++i) world.Advance(Milliseconds(900));
  EXPECT_EQ(world.coordinator().members().size(), 1u);
}

// A supervisor says when one of these has ended, and starts it again: a connection that ended says
// nothing of it.
TEST(CoordinatorJoinTest, KeepsLocalMemberWithoutConnection) {
  CoordinatorWorld world(Budget(1000, 1));
  const std::uint64_t own = world.Join(Role::kActor, 0);
  const Origin origin{.role = Role::kActor, .index = 0, .incarnation = own};
  world.Advance(Milliseconds(1));
  world.coordinator().PeerChanged(origin, PeerState::kDown);
  for (int i = 0; i < 10; ++i) world.Advance(Milliseconds(900));
  EXPECT_EQ(world.coordinator().members().size(), 1u);
}

TEST(CoordinatorJoinTest, KeyRegistersOnlyItsRole) {
  CoordinatorWorld world(Budget(1000));
  Coordinator* const coordinator = &world.coordinator();
  EXPECT_TRUE(RegisterWith(coordinator, Role::kActor, Role::kActor).ok());
  EXPECT_TRUE(RegisterWith(coordinator, Role::kLearner, Role::kLearner).ok());
  EXPECT_TRUE(RegisterWith(coordinator, Role::kLearner, Role::kNone).ok()) << "without keys";
  for (const Role role : {Role::kLearner, Role::kReplay, Role::kParamServer, Role::kEvaluator}) {
    const Status refused = RegisterWith(coordinator, role, Role::kActor);
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition) << RoleName(role);
    EXPECT_THAT(refused.message(), HasSubstr("a key of the role actor"));
    EXPECT_THAT(refused.message(), HasSubstr(std::string(RoleName(role))));
  }
  EXPECT_FALSE(RegisterWith(coordinator, Role::kActor, Role::kTool).ok());
  EXPECT_FALSE(RegisterWith(coordinator, Role::kLearner, Role::kLearner, -1).ok())
      << "indices are given to actors alone";
}

Config LeftToOthers(const std::vector<std::string>& roles) {
  Config config = Budget(1000, 2);
  config.fleet.external_roles = roles;
  config.replay.shards = 2;
  return config;
}

TEST(CoordinatorJoinTest, FillsExternalSlotsInOrder) {
  CoordinatorWorld world(LeftToOthers({"replay", "learner"}));
  using Names = std::vector<std::string>;
  EXPECT_EQ(world.coordinator().EmptySlots(), Names({"replay-0", "replay-1", "learner-0"}));
  const auto first = world.JoinAs(Role::kReplay, 10, "10.0.0.1");
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->index, 0);
  EXPECT_EQ(first->listen, "tcp://10.0.0.1:0") << "where others reach it";
  EXPECT_EQ(world.JoinAs(Role::kReplay, 11, "10.0.0.2")->index, 1);
  EXPECT_EQ(world.JoinAs(Role::kReplay, 12, "10.0.0.3").status().code(), Code::kResourceExhausted);
  EXPECT_EQ(world.JoinAs(Role::kLearner, 13, "10.0.0.1")->index, 0);
  EXPECT_EQ(world.coordinator().EmptySlots(), Names());
  EXPECT_EQ(world.JoinAs(Role::kEvaluator, 14).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(world.JoinAs(Role::kActor, 15)->index, 2) << "actors come uninvited, behind its own";
}

TEST(CoordinatorJoinTest, ReusesEmptySlotAndItsEndpoint) {
  CoordinatorWorld world(LeftToOthers({"replay"}));
  const auto first = world.JoinAs(Role::kReplay, 10, "10.0.0.1");
  (void)world.JoinAs(Role::kReplay, 11, "10.0.0.2");
  ASSERT_TRUE(
      world.Beat(Role::kReplay, 0, first->incarnation, {.endpoint = "tcp://10.0.0.1:4000#aa"})
          .ok());
  const Origin origin{.role = Role::kReplay, .index = 0, .incarnation = first->incarnation};
  world.Advance(Milliseconds(1));
  world.coordinator().PeerChanged(origin, PeerState::kDown);
  for (int i = 0; i < 4; ++i) world.Advance(Milliseconds(900));
  EXPECT_EQ(world.coordinator().EmptySlots(), std::vector<std::string>{"replay-0"});
  const auto other = world.JoinAs(Role::kReplay, 12, "10.0.0.3");
  EXPECT_EQ(other->index, 0);
  EXPECT_EQ(other->listen, "tcp://10.0.0.3:0");
  ASSERT_TRUE(
      world.Beat(Role::kReplay, 0, other->incarnation, {.endpoint = "tcp://10.0.0.3:5000"}).ok());
  world.coordinator().OnMemberExit(Role::kReplay, 0, 12);
  EXPECT_EQ(world.JoinAs(Role::kReplay, 13, "10.0.0.3")->listen, "tcp://10.0.0.3:5000")
      << "the same machine: where its peers look for it";
}

TEST(CoordinatorJoinTest, CountsConnectedExternalRoles) {
  CoordinatorWorld world(LeftToOthers({"replay"}));
  world.Join(Role::kActor, 0);
  EXPECT_EQ(world.coordinator().external_members(), 0) << "a supervisor sees its own";
  const auto replay = world.JoinAs(Role::kReplay, 10, "10.0.0.1");
  EXPECT_TRUE(world.JoinAsActor(11).ok());
  EXPECT_EQ(world.coordinator().external_members(), 2);
  const Origin origin{.role = Role::kReplay, .index = 0, .incarnation = replay->incarnation};
  world.coordinator().PeerChanged(origin, PeerState::kDown);
  EXPECT_EQ(world.coordinator().external_members(), 1);
  world.coordinator().PeerChanged(origin, PeerState::kUp);
  EXPECT_EQ(world.coordinator().external_members(), 2);
}

TEST(CoordinatorJoinTest, CountsMissingActors) {
  Config config = LeftToOthers({"actor"});
  config.fleet.actors_min = 2;
  CoordinatorWorld world(config);
  EXPECT_EQ(world.coordinator().EmptySlots(), std::vector<std::string>{"2 of 2 actors"});
  EXPECT_EQ(world.JoinAsActor(10)->index, 0);
  EXPECT_EQ(world.coordinator().EmptySlots(), std::vector<std::string>{"1 of 2 actors"});
  EXPECT_EQ(world.JoinAsActor(11)->index, 1);
  EXPECT_TRUE(world.coordinator().EmptySlots().empty());
}

TEST(CoordinatorJoinTest, SharesGroupSecretWithLearnersOnly) {
  Config config = LeftToOthers({"learner"});
  config.fleet.learners = 2;
  EXPECT_EQ(CoordinatorWorld(config).JoinAs(Role::kLearner, 10, "10.0.0.1")->group_secret, "");
  config.security.keys = "keys";
  CoordinatorWorld world(config), another(config);
  const std::string secret = world.JoinAs(Role::kLearner, 10, "10.0.0.1")->group_secret;
  EXPECT_EQ(secret.size(), 32u);
  EXPECT_EQ(world.JoinAs(Role::kLearner, 11, "10.0.0.2")->group_secret, secret);
  EXPECT_EQ(world.JoinAsActor(12)->group_secret, "");
  EXPECT_NE(another.JoinAs(Role::kLearner, 10, "10.0.0.1")->group_secret, secret);
}

TEST(CoordinatorJoinTest, RejectsJoinWithReason) {
  CoordinatorWorld world(Budget(1000));
  Coordinator* const coordinator = &world.coordinator();
  const JoinRequest good{
      .role = Role::kActor, .count = 8, .version = kTroopVersion, .host = "elsewhere"};
  EXPECT_TRUE(JoinWith(coordinator, good).ok());
  EXPECT_TRUE(JoinWith(coordinator, good, Role::kActor).ok());
  EXPECT_THAT(JoinWith(coordinator, good, Role::kLearner).message(), HasSubstr("role learner"));
  JoinRequest bad = good;
  bad.version = "9.9.9";
  EXPECT_THAT(JoinWith(coordinator, bad).message(), HasSubstr("9.9.9"));
  EXPECT_THAT(JoinWith(coordinator, bad).message(), HasSubstr(kTroopVersion));
  bad = good;
  bad.role = Role::kLearner;
  EXPECT_THAT(JoinWith(coordinator, bad).message(), HasSubstr("learner"));
  for (const std::int32_t count : {0, -1, 1 << 30}) {
    bad = good;
    bad.count = count;
    EXPECT_EQ(JoinWith(coordinator, bad).code(), Code::kInvalidArgument) << count;
  }
  coordinator->Drain();
  EXPECT_EQ(JoinWith(coordinator, good).code(), Code::kFailedPrecondition) << "it is over";
}

}  // namespace
}  // namespace troop
