#include "fleet/roles/external_roles.h"

#include <gtest/gtest.h>

#include "fleet/serial/serial_fleet.h"

namespace troop {
namespace {

TEST(ElsewhereRolesTest, LauncherStartsAllButExternalRoles) {
  Config config;
  config.fleet.external_roles = {"replay", "actor"};
  EXPECT_TRUE(IsExternal(config, Role::kReplay));
  EXPECT_FALSE(IsExternal(config, Role::kLearner));
  for (const FleetRole& role : RolesOf(config)) {
    EXPECT_TRUE(role.role != Role::kReplay && role.role != Role::kActor);
  }
  EXPECT_GE(RolesOf(config).size(), 2u);
}

TEST(ElsewhereRolesTest, ReturnsLocalAddressTowardsPeer) {
  EXPECT_EQ(*LocalAddressTo("tcp://127.0.0.1:7701"), "127.0.0.1");
  EXPECT_EQ(LocalAddressTo("ipc:///tmp/x").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LocalAddressTo("tcp://no-such-name.invalid:1").status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace troop
