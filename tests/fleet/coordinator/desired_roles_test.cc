#include "fleet/coordinator/desired_roles.h"

#include <gtest/gtest.h>

#include "tests/fleet/supervised_run_config.h"

namespace troop {
namespace {

// The parts of a run that its desired state is derived from.
struct FleetParts {
  explicit FleetParts(Config given) : config(std::move(given)) {}
  DesiredRoles desired() const {
    return DesiredRoles({.config = &config,
                         .lifecycle = &lifecycle,
                         .slots = &slots,
                         .parameter_servers = parameter_servers});
  }

  const Config config;
  RunLifecycle lifecycle{&config, 0};
  RoleSlots slots{config};
  std::int32_t parameter_servers = 1;
  Membership members{{.silence_max = Seconds(5)}};
};

Config Small() {
  Config config;
  config.run.total_steps = 100;
  config.fleet.actors = 2;
  config.replay.shards = 2;
  return config;
}

TEST(DesiredRolesTest, ListsAllSlotsInOrderOfConfig) {
  const FleetParts run(Small());
  using Slots = std::vector<std::pair<Role, std::int32_t>>;
  EXPECT_EQ(run.desired().All(), (Slots{{Role::kReplay, 0},
                                        {Role::kReplay, 1},
                                        {Role::kParamServer, 0},
                                        {Role::kLearner, 0},
                                        {Role::kActor, 0},
                                        {Role::kActor, 1},
                                        {Role::kEvaluator, 0}}));
  Config config = test::SupervisedRunConfig("bert");
  config.evaluator.enabled = false;
  FleetParts supervised(config);
  supervised.parameter_servers = 0;
  EXPECT_EQ(supervised.desired().All(), (Slots{{Role::kLearner, 0}}));
}

TEST(DesiredRolesTest, CountsSlotsOfEachRole) {
  FleetParts run(Small());
  run.parameter_servers = 4;
  EXPECT_EQ(run.desired().SlotCount(Role::kActor), 2);
  EXPECT_EQ(run.desired().SlotCount(Role::kReplay), 2);
  EXPECT_EQ(run.desired().SlotCount(Role::kParamServer), 4);
  EXPECT_EQ(run.desired().SlotCount(Role::kLearner), 1);
  EXPECT_EQ(run.desired().SlotCount(Role::kEvaluator), 1);
  EXPECT_EQ(run.desired().SlotCount(Role::kInference), 0);
  EXPECT_EQ(run.desired().SlotCount(Role::kTool), 0);
}

TEST(DesiredRolesTest, ActorsHaveSlotsByIndexAndOtherRolesByCount) {
  FleetParts run(Small());
  const std::vector<std::int32_t> joined = {2};
  run.slots.SetActors(3, joined);
  EXPECT_TRUE(run.desired().HasSlot(Role::kActor, 3));
  EXPECT_FALSE(run.desired().HasSlot(Role::kActor, 2)) << "an external actor has this index";
  EXPECT_TRUE(run.desired().HasSlot(Role::kReplay, 1));
  EXPECT_FALSE(run.desired().HasSlot(Role::kReplay, 2));
  EXPECT_FALSE(run.desired().HasSlot(Role::kReplay, -1));
  EXPECT_FALSE(run.desired().HasSlot(Role::kCoordinator, 0));
}

TEST(DesiredRolesTest, NeedsSlotsThatPhaseNeeds) {
  FleetParts run(Small());
  EXPECT_TRUE(run.desired().Needs(Role::kActor, 1));
  EXPECT_FALSE(run.desired().Needs(Role::kActor, 2));
  EXPECT_TRUE(run.desired().Needs(Role::kParamServer, 0));
  EXPECT_FALSE(run.desired().Needs(Role::kParamServer, 1));
  run.parameter_servers = 2;
  EXPECT_TRUE(run.desired().Needs(Role::kParamServer, 1)) << "a reshard adds it";
  run.lifecycle.Advance({.learner_finished = true});
  EXPECT_FALSE(run.desired().Needs(Role::kActor, 1));
  EXPECT_TRUE(run.desired().Needs(Role::kReplay, 1));
  EXPECT_EQ(run.desired().phase(), Phase::kEvaluating);
  run.lifecycle.Stop();
  EXPECT_FALSE(run.desired().Needs(Role::kReplay, 1));
}

TEST(DesiredRolesTest, EmptySlotsAreExternalRolesAndMissingActors) {
  using Names = std::vector<std::string>;
  Config config = Small();
  config.fleet.external_roles = {"replay", "evaluator"};
  config.fleet.actors_min = 2;
  FleetParts run(config);
  EXPECT_EQ(run.desired().EmptySlots(run.members),
            Names({"replay-0", "replay-1", "evaluator-0", "2 of 2 actors"}));
  run.members.Admit({.role = Role::kReplay, .index = 0, .incarnation = 1}, "", true, Time());
  run.members.Admit({.role = Role::kActor, .index = 0, .incarnation = 2}, "", false, Time());
  EXPECT_EQ(run.desired().EmptySlots(run.members),
            Names({"replay-1", "evaluator-0", "1 of 2 actors"}));
  run.members.Remove(Role::kReplay, 0, 0);
  EXPECT_EQ(run.desired().EmptySlots(run.members).at(0), "replay-0");
  run.lifecycle.Stop();
  EXPECT_EQ(run.desired().EmptySlots(run.members), Names());
}

}  // namespace
}  // namespace troop
