#include "fleet/run/config_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troop {
namespace {

TEST(ConfigChangeTest, NamesChangedKeysWithBothValues) {
  Config before, now;
  EXPECT_THAT(ConfigChanges(ToToml(before), now), testing::IsEmpty());
  now.seed = 9;
  now.learner.gamma = 0.5;
  EXPECT_THAT(ConfigChanges(ToToml(before), now),
              testing::ElementsAre("learner.gamma = 0.5 (it was 0.99)", "seed = 9 (it was 1)"));
}

TEST(ConfigChangeTest, IgnoresKeysThatRunSetsItself) {
  Config before, now;
  now.name = "moved";
  now.log.dir = "elsewhere";
  before.fleet.mode = now.fleet.mode = FleetMode::kSerial;
  before.replay.persist = true;
  EXPECT_THAT(ConfigChanges(ToToml(before), now), testing::IsEmpty());
  EXPECT_THAT(ConfigChanges("of = \"another version\"", now), testing::IsEmpty());
}

}  // namespace
}  // namespace troop
