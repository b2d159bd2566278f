#include "learners/node/rollback_control.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/executor.h"
#include "learners/supervised/index_sampler.h"
#include "tests/learners/dqn_testing.h"

namespace troop {
namespace {

// The control of a small DQN.
class RollbackControlTest : public testing::Test {
 protected:
  RollbackControl MakeControl(bool shards) {
    return RollbackControl({.config = &config_,
                            .env = &env_,
                            .executor = &executor_,
                            .run = run_.get(),
                            .algorithm = algorithm_.get(),
                            .shards_hold_weights = shards});
  }
  // A job of one update, which was skipped.
  static UpdateJob SkippedJob() { return JobOf({DataLoss("the loss is nan")}); }
  // A job whose updates were all skipped, each for its reason.
  static UpdateJob JobOf(const std::vector<Status>& reasons) {
    UpdateJob job;
    for (const Status& why : reasons) {
      job.batches.push_back(EmptyBatch(2, 1));
      job.priority.emplace_back();
      job.Skip(job.batches.size() - 1, why);
    }
    return job;
  }

  const TrainingConfig config_ = SmallConfig();
  const EnvSpec env_ = Env();
  const std::unique_ptr<Storage> run_ = MakeMemoryStorage();
  InlineExecutor executor_;
  const std::unique_ptr<Algorithm> algorithm_ = Make(config_);
  const std::unique_ptr<ReplaySampler> sampler_ = MakeIndexSampler();
};

TEST_F(RollbackControlTest, RequestsRollbackAfterConsecutiveSkips) {
  RollbackControl control = MakeControl(false);
  const UpdateJob skipped = SkippedJob();
  for (int i = 1; i < RollbackRule::kSkippedMax; ++i) {
    EXPECT_TRUE(control.Review(skipped, sampler_.get()).ok()) << i;
  }
  EXPECT_EQ(control.Review(skipped, sampler_.get()).message(), "the loss is nan");
  EXPECT_EQ(control.skipped(), std::uint64_t(RollbackRule::kSkippedMax));
}

// A program that refuses many batches, as it does when it ends, must not reset the weights.
TEST_F(RollbackControlTest, RefusedBatchesRequestNone) {
  RollbackControl control = MakeControl(false);
  const UpdateJob refused = JobOf({Cancelled("the program refused the batch: the program ends")});
  for (int i = 0; i < 3 * RollbackRule::kSkippedMax; ++i) {
    EXPECT_TRUE(control.Review(refused, sampler_.get()).ok()) << i;
  }
  EXPECT_EQ(control.skipped(), std::uint64_t(3 * RollbackRule::kSkippedMax));
  EXPECT_EQ(control.quarantined(), 0u);
}

// Former fault: the status of the last batch of a job decided for all of them.
TEST_F(RollbackControlTest, EachBatchOfJobHasItsOwnReason) {
  const Status refused = Cancelled("the program refused the batch: too old");
  const Status diverged = DataLoss("the loss is nan");
  for (const auto& reasons : {std::vector{refused, diverged}, {diverged, refused}}) {
    RollbackControl control = MakeControl(false);
    const UpdateJob job = JobOf(reasons);
    for (int i = 1; i < RollbackRule::kSkippedMax; ++i) {
      EXPECT_TRUE(control.Review(job, sampler_.get()).ok()) << i;
    }
    EXPECT_EQ(control.Review(job, sampler_.get()).message(), diverged.message());
    EXPECT_EQ(control.skipped(), std::uint64_t(2 * RollbackRule::kSkippedMax));
  }
}

TEST_F(RollbackControlTest, RequestsRollbackAtOnceForBadWeight) {
  RollbackControl control = MakeControl(false);
  UpdateJob job;
  job.weights = DataLoss("a weight is nan");
  EXPECT_EQ(control.Review(job, sampler_.get()).message(), "a weight is nan");
}

TEST_F(RollbackControlTest, RestoresWeightsWithHigherUpdateCount) {
  RollbackControl control = MakeControl(false);
  const std::vector<float> first(algorithm_->value().begin(), algorithm_->value().end());
  algorithm_->external_optimizer()->ReplaceWeights(9, std::vector<float>(first.size(), 3));
  const Status why = DataLoss("a weight is nan");
  ASSERT_TRUE(control.Permit(why).ok());
  control.Start(why);
  EXPECT_TRUE(control.busy());
  const auto done = control.Poll();
  ASSERT_TRUE(done.ok() && done->has_value());
  EXPECT_FALSE(control.busy());
  EXPECT_GT((*done)->updates, 9u);
  EXPECT_TRUE(std::ranges::equal((*done)->value.as<float>(), first));
  EXPECT_NE((*done)->description.find("a weight is nan"), std::string::npos);
}

TEST_F(RollbackControlTest, PermitsLimitedNumberOfRollbacks) {
  RollbackControl control = MakeControl(false);
  for (int i = 0; i < RollbackRule::kRollbacksMax; ++i) {
    EXPECT_TRUE(control.Permit(DataLoss("nan")).ok()) << i;
  }
  EXPECT_EQ(control.Permit(DataLoss("nan")).code(), Code::kCancelled);
}

TEST_F(RollbackControlTest, PermitsNoneForFailedDeviceOrWithShards) {
  RollbackControl control = MakeControl(false), shards = MakeControl(true);
  EXPECT_EQ(control.Permit(Unavailable("the device has failed")).code(), Code::kUnavailable);
  EXPECT_EQ(shards.Permit(DataLoss("nan")).code(), Code::kCancelled);
}

}  // namespace
}  // namespace troop
