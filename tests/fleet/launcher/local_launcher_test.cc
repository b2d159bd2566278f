#include "fleet/launcher/local_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <limits>
#include <thread>

#include "fleet/launcher/subprocess.h"
#include "tests/core/temp_folder.h"
#include "tests/fleet/coordinator_world.h"

namespace troop {
namespace {

constexpr FleetRole kLearner{Role::kLearner, 0}, kSecondLearner{Role::kLearner, 1};
constexpr FleetRole kFirstActor{Role::kActor, 0};

Config TwoLearners() {
  Config config = Budget(1000);
  config.fleet.learners = 2;
  return config;
}

TEST(LocalLauncherTest, HasSlotsOfAllRolesButExternalOnes) {
  Config config = Budget(1000, 3);
  EXPECT_EQ(LocalLauncher(config, false).Slots(1), RolesOf(config, 1));
  config.fleet.external_roles = {"actor"};
  for (const FleetRole& slot : LocalLauncher(config, false).Slots(1)) {
    EXPECT_NE(slot.role, Role::kActor);
  }
}

// The other learners are ranks of mpirun.
TEST(LocalLauncherTest, StartsOnlyFirstLearnerUnderMpirun) {
  Config config = TwoLearners();
  CoordinatorWorld world(config);
  config.fleet.external_roles = {"learner"};
  LocalLauncher launcher(config, true);
  const std::vector<FleetRole> slots = launcher.Slots(1);
  EXPECT_EQ(std::ranges::count(slots, kLearner), 1);
  EXPECT_EQ(std::ranges::count(slots, kSecondLearner), 0);
  EXPECT_TRUE(launcher.Needs(kLearner, world.coordinator(), Time{}));
  EXPECT_FALSE(launcher.Needs(kSecondLearner, world.coordinator(), Time{}));
}

TEST(LocalLauncherTest, NeedsTheRolesThatTheCoordinatorNeeds) {
  CoordinatorWorld world(TwoLearners());
  LocalLauncher launcher(TwoLearners(), false);
  EXPECT_TRUE(launcher.Needs(kSecondLearner, world.coordinator(), Time{}));
  EXPECT_FALSE(launcher.Needs({Role::kActor, 1000}, world.coordinator(), Time{}));
}

TEST(LocalLauncherTest, ExitRemovesTheMember) {
  CoordinatorWorld world(Budget(1000));
  world.Join(Role::kActor, 0);
  ASSERT_EQ(world.coordinator().members().size(), 1u);
  LocalLauncher launcher(Budget(1000), false);
  launcher.NoteExit({.role = kFirstActor, .process = kProcess}, &world.coordinator(), Time{});
  EXPECT_TRUE(world.coordinator().members().empty());
}

TEST(LocalLauncherTest, RefusesMoreActorsThanTheMachineHolds) {
  Config config;
  config.env.id = "CartPole-v1";
  config.fleet.actors = std::numeric_limits<std::int32_t>::max();
  const Status status = LocalLauncher(config, false).CheckRoom(config);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("troop join"));
}

// A supervised process that never registers with the coordinator.
class HungRoleTest : public testing::Test {
 protected:
  HungRoleTest() : supervisor_(Options(), {kFirstActor}) {
    supervisor_.Tick(now_, [](FleetRole) { return true; });
  }
  Supervisor::Options Options() const {
    return {
        .executable = "/bin/sleep",
        .coordinator = "ipc:///nowhere",
        .log_folder = temp_.path(),
        .config = config_,
        .spawn = [](const std::string& program, std::vector<std::string>, const std::string& log) {
          return StartChild(program, {"sleep", "1000"}, log, SIGKILL);
        }};
  }
  Time Watch(Duration after) {
    Time next{};
    EXPECT_TRUE(launcher_.Watch(now_ + after, &world_.coordinator(), &supervisor_, &next).ok());
    return next;
  }
  // The exit of the killed process, once it has ended.
  Supervisor::Exit AwaitExit() {
    for (;;) {
      const auto exits = supervisor_.Tick(now_, [](FleetRole) { return false; });
      if (!exits.empty()) return exits[0];
      std::this_thread::yield();
    }
  }

  TempFolder temp_;
  const Config config_ = Budget(1000);
  const Time now_ = Time{} + Seconds(100);
  CoordinatorWorld world_{config_};
  LocalLauncher launcher_{config_, false};
  Supervisor supervisor_;
};

TEST_F(HungRoleTest, IsKilledAfterStallTimeout) {
  Watch(Seconds(config_.fleet.stall_timeout_s + 1));
  EXPECT_THAT(AwaitExit().reason, testing::HasSubstr("(fleet.stall_timeout_s)"));
}

TEST_F(HungRoleTest, IsKeptBeforeStallTimeout) {
  const Time next = Watch(Seconds(config_.fleet.stall_timeout_s / 2));
  EXPECT_EQ(next, now_ + Seconds(config_.fleet.stall_timeout_s / 2) + Milliseconds(250));
  EXPECT_EQ(supervisor_.alive(), 1);
  EXPECT_TRUE(supervisor_.Tick(now_, [](FleetRole) { return true; }).empty());
}

}  // namespace
}  // namespace troop
