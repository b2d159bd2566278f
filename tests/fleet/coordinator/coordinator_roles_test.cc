// The human-readable part of a coordinator's status reply.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/storage/json.h"
#include "tests/fleet/coordinator_world.h"

namespace troop {
namespace {

using State = RoleView::State;

Config TwoActors() {
  Config config;
  config.fleet.actors = 2;
  config.fleet.heartbeat_timeout_s = 1.5;
  config.fleet.stall_timeout_s = 30;
  return config;
}

RoleView Find(CoordinatorWorld& world, Role role, std::int32_t index) {
  for (const RoleView& r : world.coordinator().roles()) {
    if (r.role == role && r.index == index) return r;
  }
  ADD_FAILURE() << PeerName(role, index) << " is not in the reply";
  return {};
}

HeartbeatRequest Beat(const char* metric, double value) {
  HeartbeatRequest beat;
  beat.metrics[metric] = {.kind = MetricKind::kCounter, .value = value};
  return beat;
}

TEST(CoordinatorRolesTest, ListsAllSlotsIncludingEmptyOnes) {
  CoordinatorWorld world(TwoActors());
  world.Join(Role::kActor, 1);
  const std::vector<RoleView> roles = world.coordinator().roles();
  std::vector<std::string> names;
  for (const RoleView& r : roles) names.push_back(PeerName(r.role, r.index));
  EXPECT_THAT(names, testing::UnorderedElementsAre("replay-0", "paramserver-0", "learner-0",
                                                   "actor-0", "actor-1", "evaluator-0"));
  EXPECT_EQ(Find(world, Role::kActor, 0).state, State::kMissing);
  const RoleView actor = Find(world, Role::kActor, 1);
  EXPECT_EQ(actor.state, State::kAlive);
  EXPECT_EQ(actor.process, kProcess);
  EXPECT_EQ(actor.restarts, 0);
  EXPECT_EQ(actor.last_error, "");
}

TEST(CoordinatorRolesTest, ReportsEmptyExternalSlotsAsAwaited) {
  Config config = TwoActors();
  config.fleet.external_roles = {"learner"};
  CoordinatorWorld world(config);
  EXPECT_EQ(Find(world, Role::kLearner, 0).state, State::kAwaited);
  EXPECT_EQ(Find(world, Role::kReplay, 0).state, State::kMissing);
  world.Join(Role::kLearner, 0);
  EXPECT_EQ(Find(world, Role::kLearner, 0).state, State::kAlive);
  world.coordinator().OnMemberExit(Role::kLearner, 0, kProcess);
  EXPECT_EQ(Find(world, Role::kLearner, 0).state, State::kAwaited);
}

TEST(CoordinatorRolesTest, ReportsRateLagAndRestartsPerRole) {
  CoordinatorWorld world(TwoActors());
  const std::uint64_t learner = world.Join(Role::kLearner, 0), actor = world.Join(Role::kActor, 0);
  HeartbeatRequest beat = Beat("actor/steps", 0);
  beat.metrics["actor/weights_version"] = {.kind = MetricKind::kGaugeMean, .value = 60};
  for (int i = 0; i <= 8; ++i) {
    beat.metrics["actor/steps"].value = 50 * i;
    ASSERT_TRUE(world.Beat(Role::kActor, 0, actor, beat).ok());
    ASSERT_TRUE(world.Beat(Role::kLearner, 0, learner, Beat("learner/version", 92 + i)).ok());
    if (i < 8) world.Advance(Milliseconds(500));
  }
  const RoleView before = Find(world, Role::kActor, 0);
  EXPECT_NEAR(before.work_per_s, 100, 1e-6);
  EXPECT_EQ(before.work, 400);
  EXPECT_EQ(before.lag_updates, 40);
  EXPECT_NEAR(Find(world, Role::kLearner, 0).work_per_s, 2, 1e-6);
  EXPECT_FALSE(Find(world, Role::kLearner, 0).lag_updates);
  world.coordinator().RecordFailure(Role::kActor, 0, "killed by signal 9; last words: none");
  world.coordinator().OnMemberExit(Role::kActor, 0, kProcess);
  EXPECT_EQ(Find(world, Role::kActor, 0).state, State::kDead);
  world.Join(Role::kActor, 0);
  const RoleView after = Find(world, Role::kActor, 0);
  EXPECT_EQ(after.state, State::kAlive);
  EXPECT_EQ(after.restarts, 1);
  EXPECT_EQ(after.work_per_s, 0);
  EXPECT_EQ(after.last_error, "killed by signal 9; last words: none");
}

TEST(CoordinatorRolesTest, ReportsSilentAndDeadRoles) {
  CoordinatorWorld world(TwoActors());
  const std::uint64_t actor = world.Join(Role::kActor, 0);
  ASSERT_TRUE(world.Beat(Role::kActor, 0, actor).ok());
  for (int i = 0; i < 3; ++i) world.Advance(Milliseconds(900));
  EXPECT_EQ(Find(world, Role::kActor, 0).state, State::kSilent);
  for (int i = 0; i < 40; ++i) world.Advance(Milliseconds(900));
  const RoleView given_up = Find(world, Role::kActor, 0);
  EXPECT_EQ(given_up.state, State::kDead);
  EXPECT_THAT(given_up.last_error, testing::HasSubstr("fleet.stall_timeout_s"));
  EXPECT_EQ(given_up.work_per_s, 0);
}

// A replay whose disk was full was "alive", and the bottleneck were the actors.
TEST(CoordinatorRolesTest, ReportsBlockedRoleWithReason) {
  CoordinatorWorld world(TwoActors());
  const std::uint64_t replay = world.Join(Role::kReplay, 0);
  HeartbeatRequest beat = Beat("replay/inserts", 0);
  beat.blocked = "the disk\nis full";
  ASSERT_TRUE(world.Beat(Role::kReplay, 0, replay, beat).ok());
  const RoleView blocked = Find(world, Role::kReplay, 0);
  EXPECT_EQ(blocked.state, State::kBlocked);
  EXPECT_EQ(blocked.reason, "the disk is full");
  const std::vector<RoleCondition> conditions = world.coordinator().View().conditions;
  ASSERT_EQ(conditions.size(), 1);
  EXPECT_EQ(conditions[0].role, Role::kReplay);
  EXPECT_EQ(conditions[0].reason, "the disk is full");
  ASSERT_TRUE(world.Beat(Role::kReplay, 0, replay, Beat("replay/inserts", 1)).ok());
  EXPECT_EQ(Find(world, Role::kReplay, 0).state, State::kAlive);
  EXPECT_TRUE(world.coordinator().View().conditions.empty());
}

TEST(CoordinatorRolesTest, ReportsRestartingUntilRoleHasWorkedForWindow) {
  Config config = TwoActors();
  config.fleet.restart_window_s = 20;
  CoordinatorWorld world(config);
  const auto fail = [&](std::int64_t failures) {
    world.Join(Role::kActor, 0);
    world.coordinator().RecordFailure(Role::kActor, 0, "exit code 1; last words: none", failures);
    world.coordinator().OnMemberExit(Role::kActor, 0, kProcess);
    EXPECT_EQ(Find(world, Role::kActor, 0).state, State::kRestarting);
    EXPECT_EQ(Find(world, Role::kActor, 0).reason, "exit code 1; last words: none");
    EXPECT_EQ(world.coordinator().View().conditions.size(), 1);
  };
  fail(1);
  std::uint64_t actor = world.Join(Role::kActor, 0);
  EXPECT_EQ(Find(world, Role::kActor, 0).state, State::kAlive);  // it may have recovered
  EXPECT_TRUE(world.coordinator().View().conditions.empty());
  fail(2);
  actor = world.Join(Role::kActor, 0);
  EXPECT_EQ(Find(world, Role::kActor, 0).state, State::kRestarting);
  for (int i = 0; i < 23; ++i) {
    world.Advance(Milliseconds(900));
    ASSERT_TRUE(world.Beat(Role::kActor, 0, actor).ok());
  }
  EXPECT_EQ(Find(world, Role::kActor, 0).state, State::kAlive);
  EXPECT_TRUE(world.coordinator().View().conditions.empty());
}

TEST(CoordinatorRolesTest, JsonMatchesRoleViews) {
  CoordinatorWorld world(TwoActors());
  world.Join(Role::kActor, 0);
  world.coordinator().RecordFailure(Role::kActor, 0, "it said \"no\"\n");
  const auto json = ParseJson(ViewJson(world.coordinator().View(), world.coordinator().roles()));
  ASSERT_TRUE(json.ok()) << json.status().message();
  const JsonValue* const roles = json->Find("roles");
  ASSERT_NE(roles, nullptr);
  ASSERT_EQ(roles->array.size(), 6u);
  for (const JsonValue& r : roles->array) {
    if (*r.String("role") != "actor-0") continue;
    EXPECT_EQ(*r.String("state"), "alive");
    EXPECT_EQ(*r.String("unit"), "steps");
    EXPECT_EQ(*r.String("last_error"), "it said \"no\"\n");
  }
  EXPECT_TRUE(json->Find("time_s") != nullptr);
}

}  // namespace
}  // namespace troop
