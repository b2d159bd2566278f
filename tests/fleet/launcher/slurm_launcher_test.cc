#include "fleet/launcher/slurm_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fleet/coordinator_world.h"

namespace troop {
namespace {

// A job of two nodes whose actors share both.
class SlurmLauncherTest : public testing::Test {
 protected:
  SlurmLauncherTest() : launcher_(config_, Job()) {}
  static Config MakeConfig() {
    Config config = Budget(1000, 4);
    config.fleet.external_roles = {"actor", "learner"};
    config.slurm.requeue = false;  // no guards
    return config;
  }
  static SlurmLauncher::Options Job() {
    return {.job = "7",
            .nodes = {{.name = "n0", .cpus = 8}, {.name = "n1", .cpus = 8}},
            .addresses = {"10.0.0.1", "10.0.0.2"},
            .srun = "/usr/bin/srun",
            .program = "/opt/troop",
            .logs = "/runs/a/logs"};
  }
  Supervisor::Options Configured() {
    Supervisor::Options options{.coordinator = "tcp://10.0.0.1:7000#key", .config = config_};
    launcher_.Configure(&options);
    return options;
  }

  const Config config_ = MakeConfig();
  SlurmLauncher launcher_;
};

// The config of a job names actors and learners as external, for the coordinator only.
TEST_F(SlurmLauncherTest, HasOneActorSlotPerNodeAndAllOtherRoles) {
  const std::vector<FleetRole> slots = launcher_.Slots(1);
  EXPECT_TRUE(launcher_.StartsExternalRoles());
  EXPECT_EQ(std::ranges::count(slots, Role::kActor, &FleetRole::role), 2);
  EXPECT_EQ(std::ranges::count(slots, FleetRole{Role::kLearner, 0}), 1);
  EXPECT_FALSE(launcher_.HasRoleIndex({Role::kActor, 1}));
  EXPECT_TRUE(launcher_.HasRoleIndex({Role::kReplay, 0}));
}

TEST_F(SlurmLauncherTest, ActorSlotBecomesJoinStepOnItsNode) {
  const Supervisor::Options options = Configured();
  std::string program = "/proc/self/exe";
  std::vector<std::string> words{"troop", "role", "actor"};
  options.wrap({Role::kActor, 1}, &program, &words);
  EXPECT_EQ(program, "/usr/bin/srun");
  EXPECT_THAT(words, testing::IsSupersetOf({"--nodelist=n1", "/opt/troop", "join",
                                            "tcp://10.0.0.1:7000", "/runs/a/logs/n1"}));
  EXPECT_EQ(options.log_name({Role::kActor, 1}), "actors-n1");
}

TEST_F(SlurmLauncherTest, OnlyActorSlotsAreOptional) {
  const Supervisor::Options options = Configured();
  EXPECT_TRUE(options.spare({Role::kActor, 0}));
  EXPECT_FALSE(options.spare({Role::kReplay, 0}));
}

TEST_F(SlurmLauncherTest, SuspectedNodeStartsNoActors) {
  CoordinatorWorld world(config_);
  constexpr Time kNow = Time{} + Seconds(100);
  const FleetRole slot{Role::kActor, 1};
  EXPECT_TRUE(launcher_.Needs(slot, world.coordinator(), kNow));
  launcher_.NoteExit({.role = slot, .process = 9}, &world.coordinator(), kNow);
  EXPECT_FALSE(launcher_.Needs(slot, world.coordinator(), kNow));
  EXPECT_TRUE(launcher_.Needs({Role::kActor, 0}, world.coordinator(), kNow));
}

}  // namespace
}  // namespace troop
