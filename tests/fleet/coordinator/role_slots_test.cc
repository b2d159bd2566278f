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
  const FleetSeats seats(Fleet(3, 2, 1));
  EXPECT_EQ(seats.counts(), (FleetCounts{.epoch = 1, .learners = 1, .replay = 2}));
  EXPECT_EQ(seats.actors(), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(seats.All().size(), 6u);
  EXPECT_TRUE(seats.Has(Role::kActor, 2));
  EXPECT_FALSE(seats.Has(Role::kActor, 3));
  EXPECT_FALSE(seats.Has(Role::kReplay, 2));
  EXPECT_TRUE(seats.Has(Role::kEvaluator, 0));
}

TEST(FleetSeatsTest, NewActorsTakeFreeIndices) {
  FleetSeats seats(Fleet(2, 1, 1));
  seats.SetActors(5, std::vector<std::int32_t>{2, 4});
  EXPECT_EQ(seats.actors(), (std::vector<std::int32_t>{0, 1, 3, 5, 6}));
  EXPECT_EQ(seats.counts().epoch, 2u);
  seats.SetActors(3, std::vector<std::int32_t>{2, 4});
  EXPECT_EQ(seats.actors(), (std::vector<std::int32_t>{0, 1, 3}));
  seats.SetActors(4, {});  // those from elsewhere have left
  EXPECT_EQ(seats.actors(), (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST(FleetSeatsTest, NewShardsCountOnceAllHaveStarted) {
  FleetSeats seats(Fleet(4, 1, 1));
  const std::uint64_t revision = seats.revision();
  seats.BeginReplay(3);
  EXPECT_NE(seats.revision(), revision);
  EXPECT_TRUE(seats.Has(Role::kReplay, 2));
  EXPECT_EQ(seats.counts(), (FleetCounts{.epoch = 1, .learners = 1, .replay = 1}));
  seats.ReplayCame();
  EXPECT_EQ(seats.counts(), (FleetCounts{.epoch = 2, .learners = 1, .replay = 3}));
  seats.BeginReplay(4);
  seats.GiveUpReplay();
  EXPECT_EQ(seats.counts(), (FleetCounts{.epoch = 2, .learners = 1, .replay = 3}));
  EXPECT_FALSE(seats.Has(Role::kReplay, 3));
}

TEST(FleetSeatsTest, LeavingShardsStayUntilItemsAreReplaced) {
  FleetSeats seats(Fleet(4, 3, 1));
  seats.SeeInserts(0, 5000);
  seats.ReplayLeaves(1, 200);
  EXPECT_EQ(seats.counts(),
            (FleetCounts{.epoch = 2, .learners = 1, .replay = 1, .replay_leaving = 2}));
  EXPECT_EQ(seats.leaving_since(), 2u);
  EXPECT_TRUE(seats.Has(Role::kReplay, 2));
  seats.SeeInserts(0, 5199);
  seats.SeeInserts(1, 300);  // what a late actor still brings to one that leaves is nothing new
  EXPECT_FALSE(seats.replay_replaced());
  seats.SeeInserts(0, 1);  // it died, and counts from 0
  EXPECT_TRUE(seats.replay_replaced());
  seats.ReplayLeft();
  EXPECT_EQ(seats.counts(), (FleetCounts{.epoch = 3, .learners = 1, .replay = 1}));
  EXPECT_FALSE(seats.Has(Role::kReplay, 1));
}

TEST(FleetSeatsTest, ScalingUpCancelsLeavingShards) {
  FleetSeats seats(Fleet(4, 2, 1));
  seats.ReplayLeaves(1, 1e9);
  seats.BeginReplay(3);
  seats.ReplayCame();
  EXPECT_EQ(seats.counts(), (FleetCounts{.epoch = 3, .learners = 1, .replay = 3}));
  EXPECT_FALSE(seats.replay_leaves());
}

}  // namespace
}  // namespace troop
