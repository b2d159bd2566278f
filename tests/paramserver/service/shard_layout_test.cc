#include "paramserver/service/shard_layout.h"

#include <gtest/gtest.h>

#include "tests/paramserver/shard_fleet.h"

namespace troop {
namespace {

TEST(ShardLayoutTest, NumbersProcessesByShard) {
  const ShardConfig config = ShardConfigFor(3, true);
  const auto module = *MakeNetwork(config.model, SmallEnv());
  const auto layout = ShardLayout::Make(config, module.get(), 3, nullptr);
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  EXPECT_EQ(layout->index(), 3);
  EXPECT_EQ(layout->shard(), 1);
  EXPECT_FALSE(layout->is_first_process());
  EXPECT_TRUE(ShardLayout::Make(config, module.get(), 2, nullptr)->is_first_process());
  EXPECT_EQ(layout->OptionsFor(layout->map()).ranges, layout->map().RangesOf(1));
}

TEST(ShardLayoutTest, AdoptsEpochsAndForeseesTheMapOfAMove) {
  const ShardConfig config = ShardConfigFor(2, false);
  const auto module = *MakeNetwork(config.model, SmallEnv());
  ShardLayout layout = *ShardLayout::Make(config, module.get(), 0, nullptr);
  std::vector<ShardEpoch> epochs;
  EXPECT_FALSE(layout.IsCurrent(epochs));  // none is adopted, and none has arrived
  epochs = {{2, 0}};
  EXPECT_FALSE(layout.IsCurrent(epochs));
  ASSERT_TRUE(layout.Adopt(epochs).ok());
  EXPECT_TRUE(layout.IsCurrent(epochs));
  const auto next = layout.MapAfterMove({.number = 9, .shards = 3});
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  EXPECT_EQ(layout.epochs().size(), 1u);
  epochs.push_back({3, 9});
  EXPECT_FALSE(layout.IsCurrent(epochs));
  ASSERT_TRUE(layout.Adopt(epochs).ok());
  EXPECT_EQ(layout.map(), *next);
  EXPECT_EQ(layout.OptionsFor(layout.map()).epoch, 2u);
}

TEST(ShardLayoutTest, RejectsEpochsOfAnotherRun) {
  const ShardConfig config = ShardConfigFor(2, false);
  const auto module = *MakeNetwork(config.model, SmallEnv());
  ShardLayout layout = *ShardLayout::Make(config, module.get(), 0, nullptr);
  const std::vector<ShardEpoch> epochs{{4, 0}};
  EXPECT_EQ(layout.Adopt(epochs).code(), Code::kDataLoss);
  EXPECT_TRUE(layout.epochs().empty());
}

// The bound counts the optimizer's slots: adam has two, sgd has none.
TEST(ShardLayoutTest, BoundsStateByOptimizer) {
  ShardConfig config = ShardConfigFor(1, false);
  const auto module = *MakeNetwork(config.model, SmallEnv());
  const auto bound = [&](OptimizerType optimizer) {
    config.optimizer.type = optimizer;
    const auto layout = ShardLayout::Make(config, module.get(), 0, nullptr);
    return layout->StateBytesMax(layout->map());
  };
  const auto bytes =
      std::size_t(ShardMapFor(config.paramserver, *module)->parameters()) * sizeof(float);
  EXPECT_GE(bound(OptimizerType::kAdam), bound(OptimizerType::kSgd) + 2 * bytes);
}

}  // namespace
}  // namespace troop
