#include "fleet/coordinator/role_slots.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

Config Fleet(std::int64_t actors, std::int64_t shards, std::int64_t learners) {
  Config config;
  config.fleet.actors = actors;
  config.replay.shards = shards;
  config.fleet.learners = learners;
  return config;
}

TEST(FleetSeatsTest, StartsFromConfig) {
  const RoleSlots slots(Fleet(3, 2, 1));
  EXPECT_EQ(slots.counts(), (FleetCounts{.epoch = 1, .learners = 1, .replay = 2}));
  EXPECT_EQ(slots.actors(), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(slots.All().size(), 6u);
  EXPECT_TRUE(slots.Has(Role::kActor, 2));
  EXPECT_FALSE(slots.Has(Role::kActor, 3));
  EXPECT_FALSE(slots.Has(Role::kReplay, 2));
  EXPECT_TRUE(slots.Has(Role::kEvaluator, 0));
}

TEST(FleetSeatsTest, NewActorsTakeFreeIndices) {
  RoleSlots slots(Fleet(2, 1, 1));
  slots.SetActors(5, std::vector<std::int32_t>{2, 4});
  EXPECT_EQ(slots.actors(), (std::vector<std::int32_t>{0, 1, 3, 5, 6}));
  EXPECT_EQ(slots.counts().epoch, 2u);
  slots.SetActors(3, std::vector<std::int32_t>{2, 4});
  EXPECT_EQ(slots.actors(), (std::vector<std::int32_t>{0, 1, 3}));
  slots.SetActors(4, {});  // those from elsewhere have left
  EXPECT_EQ(slots.actors(), (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST(FleetSeatsTest, NewShardsCountOnceAllHaveStarted) {
  RoleSlots slots(Fleet(4, 1, 1));
  const std::uint64_t revision = slots.revision();
  slots.StartReplayScaleUp(3);
  EXPECT_NE(slots.revision(), revision);
  EXPECT_TRUE(slots.Has(Role::kReplay, 2));
  EXPECT_EQ(slots.counts(), (FleetCounts{.epoch = 1, .learners = 1, .replay = 1}));
  slots.CommitReplayScaleUp();
  EXPECT_EQ(slots.counts(), (FleetCounts{.epoch = 2, .learners = 1, .replay = 3}));
  slots.StartReplayScaleUp(4);
  slots.AbortReplayScaleUp();
  EXPECT_EQ(slots.counts(), (FleetCounts{.epoch = 2, .learners = 1, .replay = 3}));
  EXPECT_FALSE(slots.Has(Role::kReplay, 3));
}

TEST(FleetSeatsTest, LeavingShardsStayUntilItemsAreReplaced) {
  RoleSlots slots(Fleet(4, 3, 1));
  slots.RecordInserts(0, 5000);
  slots.StartReplayDrain(1, 200);
  EXPECT_EQ(slots.counts(),
            (FleetCounts{.epoch = 2, .learners = 1, .replay = 1, .replay_leaving = 2}));
  EXPECT_EQ(slots.draining_since(), 2u);
  EXPECT_TRUE(slots.Has(Role::kReplay, 2));
  slots.RecordInserts(0, 5199);
  slots.RecordInserts(1, 300);  // what a late actor still brings to one that leaves is nothing new
  EXPECT_FALSE(slots.replay_replaced());
  slots.RecordInserts(0, 1);  // it died, and counts from 0
  EXPECT_TRUE(slots.replay_replaced());
  slots.FinishReplayDrain();
  EXPECT_EQ(slots.counts(), (FleetCounts{.epoch = 3, .learners = 1, .replay = 1}));
  EXPECT_FALSE(slots.Has(Role::kReplay, 1));
}

TEST(FleetSeatsTest, ScalingUpCancelsLeavingShards) {
  RoleSlots slots(Fleet(4, 2, 1));
  slots.StartReplayDrain(1, 1e9);
  slots.StartReplayScaleUp(3);
  slots.CommitReplayScaleUp();
  EXPECT_EQ(slots.counts(), (FleetCounts{.epoch = 3, .learners = 1, .replay = 3}));
  EXPECT_FALSE(slots.replay_draining());
}

}  // namespace
}  // namespace troop
