#include "learners/sync/shard_progress.h"

#include <gtest/gtest.h>

#include "learners/supervised/dataset.h"
#include "tests/learners/sync/shard_training.h"

namespace troop {
namespace {

TEST(ShardProgressTest, SynchronousBatchesFollowVersions) {
  const TrainingConfig config = ShardTrainingConfig(ShardConfigFor(1, false, SyncMode::kBsp));
  ShardProgress progress(config);
  progress.Pulled(1);
  EXPECT_EQ(progress.Next(0).batches, 0u);
  progress.CountGradient();
  progress.Pulled(6);  // the others made updates in between
  EXPECT_EQ(progress.Next(0).batches, BatchesOfUpdates(config, 5));
}

TEST(ShardProgressTest, AsynchronousBatchesAreCountedByTheLearner) {
  const TrainingConfig config = ShardTrainingConfig(ShardConfigFor(1, false, SyncMode::kAsync));
  ShardProgress progress(config);
  progress.Pulled(6);  // joins a run
  const std::uint64_t first = progress.Next(0).batches;
  EXPECT_EQ(first, BatchesOfUpdates(config, 5));
  progress.CountGradient();
  progress.Pulled(20);
  EXPECT_EQ(progress.Next(0).batches, first + 1) << "the others' updates skip none of its share";
  progress.Pulled(3);  // the shards went back
  EXPECT_EQ(progress.Next(0).batches, BatchesOfUpdates(config, 2));
}

TEST(ShardProgressTest, ProgressGrowsBetweenPulls) {
  TrainingConfig config = ShardTrainingConfig(ShardConfigFor(1, false, SyncMode::kAsync));
  config.run.max_updates = 100;
  config.paramserver.push_every = 2;
  ShardProgress progress(config);
  progress.Pulled(11);
  EXPECT_DOUBLE_EQ(progress.Next(0.9).progress, 0.1);
  progress.CountGradient();
  EXPECT_DOUBLE_EQ(progress.Next(0.9).progress, 0.105);
  config.run.max_updates = 0;
  ShardProgress unlimited(config);
  unlimited.Pulled(11);
  EXPECT_DOUBLE_EQ(unlimited.Next(0.9).progress, 0.9);
  EXPECT_FALSE(unlimited.complete());
}

TEST(ShardProgressTest, IsCompleteAfterTheLastUpdate) {
  TrainingConfig config = ShardTrainingConfig(ShardConfigFor(1, false, SyncMode::kAsync));
  config.run.max_updates = 4;
  ShardProgress progress(config);
  EXPECT_FALSE(progress.complete());
  progress.Pulled(4);
  EXPECT_FALSE(progress.complete());
  EXPECT_EQ(progress.updates(), 3u);
  progress.Pulled(7);
  EXPECT_TRUE(progress.complete());
  EXPECT_EQ(progress.updates(), 4u);
}

}  // namespace
}  // namespace troop
