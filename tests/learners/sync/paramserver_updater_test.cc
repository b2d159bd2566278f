#include <gtest/gtest.h>

#include <string>

#include "learners/sync/updater.h"
#include "tests/learners/sync/shard_training.h"

namespace troop {
namespace {

class ShardUpdaterTest : public testing::TestWithParam<SyncMode> {
 protected:
  ShardFleet fleet_{ShardConfigFor(2, false, GetParam())};
  ShardFleet::Learner* other_ = fleet_.AddLearner(1);
  ShardFleet::Learner* lead_ = fleet_.AddLearner(0);
  InlineExecutor executor_;
  const TrainingConfig config_ = ShardTrainingConfig(fleet_.config_);
  std::unique_ptr<Algorithm> algorithm_ = *MakeAlgorithm(config_, SmallEnv());
  std::unique_ptr<Updater> updater_ = *MakeParamserverUpdater({.config = &config_,
                                                               .module = fleet_.module_.get(),
                                                               .network = lead_->network.get(),
                                                               .member = lead_->member.get(),
                                                               .executor = &executor_,
                                                               .algorithm = algorithm_.get()});

  void OtherSteps(std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t step = from; step < to; ++step) {
      ASSERT_TRUE(fleet_.Pull(other_));
      fleet_.Push(other_, step);
    }
    ASSERT_TRUE(fleet_.Await([&] { return other_->client->pushes_open() == 0; }));
  }
  bool Ends() {
    return fleet_.Await([&] {
      EXPECT_TRUE(updater_->Poll(fleet_.now_).ok());
      return updater_->Finished(true);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(, ShardUpdaterTest, testing::Values(SyncMode::kBsp, SyncMode::kAsync),
                         [](const auto& info) { return std::string(EnumName(info.param)); });

// With replay.scope = "local" the shard of the first learner may stay without items until the end:
// the run's last checkpoint was of update 0, whatever the others had made.
TEST_P(ShardUpdaterTest, LeaderEndsWithUpdatesOfOthersWithoutBatch) {
  ASSERT_TRUE(fleet_.Await([&] {
    EXPECT_TRUE(updater_->Poll(fleet_.now_).ok());
    return updater_->CanTake();
  }));
  OtherSteps(0, 3);
  EXPECT_EQ(algorithm_->updates(), 0u);
  ASSERT_TRUE(Ends());
  EXPECT_EQ(algorithm_->updates(), 3u);
  ASSERT_TRUE(fleet_.Pull(other_));
  EXPECT_TRUE(SameBytes(algorithm_->value(), other_->value));
}

// The shards do not wait for a learner that has left.
TEST_P(ShardUpdaterTest, OthersContinueAfterFinalPull) {
  OtherSteps(0, 1);
  ASSERT_TRUE(Ends());
  OtherSteps(1, 4);
  EXPECT_EQ(algorithm_->updates(), 1u);
  EXPECT_TRUE(updater_->Finished(true));
}

TEST_P(ShardUpdaterTest, LeavesWithoutFinalPull) {
  OtherSteps(0, 1);
  updater_->Deregister();
  EXPECT_TRUE(Ends());
  EXPECT_EQ(algorithm_->updates(), 0u);
}

// A learner that ended while its pull was open left for a resharding with a second pull, which
// aborted the process.
TEST_P(ShardUpdaterTest, LeavesForReshardingAfterAbandonedPull) {
  ASSERT_TRUE(fleet_.Await([&] {
    EXPECT_TRUE(updater_->Poll(fleet_.now_).ok());
    return updater_->CanTake();
  }));
  auto job = std::make_unique<UpdateJob>();
  job->batches.emplace_back();
  updater_->Take(std::move(job));
  ASSERT_TRUE(updater_->Poll(fleet_.now_).ok());  // requests the pull
  updater_->Deregister();
  ASSERT_TRUE(updater_->Poll(fleet_.now_).ok());
  ASSERT_NE(updater_->Collect(), nullptr);
  lead_->stays = true;  // the updater leaves, not the fleet's own client
  ASSERT_TRUE(fleet_.BeginMove(3).ok());
  ASSERT_TRUE(fleet_.Await([&] {
    EXPECT_TRUE(updater_->Poll(fleet_.now_).ok());
    return fleet_.moved_.has_value();
  }));
  EXPECT_TRUE(fleet_.moved_->ok()) << fleet_.moved_->ToString();
}

}  // namespace
}  // namespace troop
