#include "replay/service/shard_selector.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/replay/scripted_channel.h"

namespace troop {
namespace {

// Rows and charge of each shard's parts.
std::vector<std::pair<std::int64_t, std::int64_t>> AssignedOf(const GroupRequest& group,
                                                              std::size_t shards) {
  std::vector<std::pair<std::int64_t, std::int64_t>> assigned(shards);
  for (const GroupRequest::Part& part : group.parts()) {
    assigned[part.shard].first += part.rows;
    assigned[part.shard].second += part.charge;
  }
  return assigned;
}

using Assigned = std::vector<std::pair<std::int64_t, std::int64_t>>;

TEST(ShardSelectorTest, RowsFollowTotalsAndChargeFollowsCredit) {
  ScriptedShards world({{.total = 1, .credit = 300}, {.total = 3, .credit = 100}});
  ShardSelector selector(&world.shards, 1);
  GroupRequest group({.rows = 40, .batches = 2, .charge = 80}, &world.shards);
  ASSERT_TRUE(selector.Plan(&group));
  EXPECT_FALSE(group.incomplete());
  EXPECT_EQ(AssignedOf(group, 2), (Assigned{{10, 60}, {30, 20}}));
  EXPECT_EQ(group.used(0), 1);
  EXPECT_EQ(group.used_sum(), 4);
  EXPECT_EQ(world.shards[0].credit(), 240);  // the charge in flight counts
}

TEST(ShardSelectorTest, ChargeIsEqualWhereNoShardHasCredit) {
  ScriptedShards world({{.total = 1, .credit = -5}, {.total = 3, .credit = 0}, {.total = 0}});
  ShardSelector selector(&world.shards, 1);
  GroupRequest group({.rows = 4, .batches = 1, .charge = 4}, &world.shards);
  ASSERT_TRUE(selector.Plan(&group));
  EXPECT_EQ(AssignedOf(group, 3), (Assigned{{1, 2}, {3, 2}, {0, 0}}));
}

TEST(ShardSelectorTest, AsksNoShardWithoutItems) {
  ScriptedShards world({{.total = 0, .credit = 9}, {.total = 0, .credit = 9}});
  ShardSelector selector(&world.shards, 1);
  GroupRequest group({.rows = 4, .batches = 1, .charge = 4}, &world.shards);
  EXPECT_FALSE(selector.Plan(&group));
  EXPECT_TRUE(group.parts().empty());
  EXPECT_EQ(group.missing(), 4);
}

TEST(ShardSelectorTest, SingleShardNeedsNoTotal) {
  ScriptedShards world({{.total = 0, .credit = 0}});
  world.shards[0].MarkDead();
  ShardSelector selector(&world.shards, 1);
  EXPECT_TRUE(selector.all_known());
  GroupRequest group({.rows = 4, .batches = 1, .charge = 4}, &world.shards);
  ASSERT_TRUE(selector.Plan(&group));
  EXPECT_EQ(AssignedOf(group, 1), (Assigned{{4, 4}}));
}

TEST(ShardSelectorTest, DeadShardGetsNothing) {
  ScriptedShards world({{.total = 1, .credit = 5}, {.total = 1, .credit = 5}});
  world.shards[1].MarkDead();
  ShardSelector selector(&world.shards, 1);
  EXPECT_EQ(selector.alive(), 1);
  EXPECT_TRUE(selector.all_known());
  GroupRequest group({.rows = 4, .batches = 1, .charge = 4}, &world.shards);
  ASSERT_TRUE(selector.Plan(&group));
  EXPECT_EQ(AssignedOf(group, 2), (Assigned{{4, 4}, {0, 0}}));
}

TEST(ShardSelectorTest, ChargeBecomesDebtOnceAllShardsClosed) {
  ScriptedShards world({{.total = 1, .credit = 5}, {.total = 1, .credit = 5}});
  for (ShardConnection& shard : world.shards) shard.Close();
  ShardSelector selector(&world.shards, 1);
  EXPECT_TRUE(selector.all_closed());
  GroupRequest group({.rows = 4, .batches = 1, .charge = 4}, &world.shards);
  ASSERT_TRUE(selector.Plan(&group));
  EXPECT_EQ(selector.debt(), 4);
  EXPECT_FALSE(group.incomplete());
}

TEST(ShardSelectorTest, DebtLowersTheCreditOfOthers) {
  ScriptedShards world({{.total = 1, .credit = 5}, {.total = 1, .credit = 7}, {.total = 1}});
  ShardSelector selector(&world.shards, 1);
  selector.AddDebt(3);
  EXPECT_EQ(selector.CreditWithout(0), 4);
  EXPECT_EQ(selector.CreditWithout(2), 9);
}

// A shard with received rows keeps the total that determined their probability.
TEST(ShardSelectorTest, MissingRowsKeepTheTotalsOfTheirGroup) {
  ScriptedShards world({{.total = 1, .credit = 5}, {.total = 1, .credit = 5}});
  ShardSelector selector(&world.shards, 1);
  GroupRequest group({.rows = 4, .batches = 1, .charge = 4}, &world.shards);
  ASSERT_TRUE(selector.Plan(&group));
  group.GiveUpShard(1);
  world.shards[1].MarkDead();
  world.shards[0].Note({.total = 100, .credit = 5});
  EXPECT_EQ(group.missing(), 2);
  ASSERT_TRUE(selector.Plan(&group));
  EXPECT_EQ(group.used(0), 1);
  EXPECT_EQ(group.used(1), 0);
  EXPECT_EQ(AssignedOf(group, 2), (Assigned{{4, 4}, {0, 0}}));
}

}  // namespace
}  // namespace troop
