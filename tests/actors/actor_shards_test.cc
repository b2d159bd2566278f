// An actor connected to a replay whose number of shards changes.
#include "tests/actors/actor_world.h"

namespace troop {
namespace {

TEST(ActorShardsTest, MovesStreamsBetweenShardsWithoutLosingItems) {
  ActingConfig config = Catch();
  config.actor.n_step = 3;
  ActorWorld world(config);
  world.PublishWeights(1);
  world.GrantUpTo(72000);  // more than it takes before the last change
  world.UseShards(1, 1);
  ASSERT_TRUE(world.Rounds(300));
  EXPECT_EQ(world.coordinator().told.fleet_epoch, 1u);
  EXPECT_EQ(world.SecondMetric("replay/inserts"), 0);
  world.UseShards(2, 2);
  ASSERT_TRUE(world.Rounds(400));
  EXPECT_EQ(world.coordinator().told.fleet_epoch, 2u);
  const double there = world.SecondMetric("replay/inserts");
  EXPECT_GT(there, 0);
  world.UseShards(1, 3);
  ASSERT_TRUE(world.Rounds(400));
  EXPECT_EQ(world.coordinator().told.fleet_epoch, 3u);
  const double before = world.Metric("replay/inserts");
  const double left = world.SecondMetric("replay/inserts");
  ASSERT_TRUE(world.Rounds(6000));
  EXPECT_GT(world.Metric("replay/inserts"), before);
  EXPECT_EQ(world.SecondMetric("replay/inserts"), left) << "it was left";
  // Catch's episodes end together, and with them the budget: each step has its item.
  EXPECT_EQ(world.coordinator().told.steps_done, 72000);
  EXPECT_EQ(world.Metric("replay/inserts") + left, 72000);
  EXPECT_EQ(world.Metric("replay/rejected_items") + world.SecondMetric("replay/rejected_items"), 0);
}

}  // namespace
}  // namespace troop
