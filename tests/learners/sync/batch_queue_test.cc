#include "learners/sync/batch_queue.h"

#include <gtest/gtest.h>

#include "tests/learners/dqn_testing.h"

namespace troop {
namespace {

class BatchQueueTest : public testing::Test {
 protected:
  static std::unique_ptr<UpdateJob> JobOf(std::size_t batches) {
    auto job = std::make_unique<UpdateJob>();
    job->batches.resize(batches);
    job->progress = 0.5;
    job->progress_step = 0.25;
    job->publish = true;
    return job;
  }
  // Marks the next batch as computed, as ReplicaStep does.
  void Compute() { queue_.job().priority.emplace_back(); }

  std::unique_ptr<Algorithm> algorithm_ = Make(SmallConfig());
  BatchQueue queue_{algorithm_.get()};
};

TEST_F(BatchQueueTest, FinishesJobAfterItsLastBatch) {
  EXPECT_FALSE(queue_.HasBatch());
  EXPECT_EQ(queue_.Collect(), nullptr);
  queue_.Add(JobOf(2));
  EXPECT_TRUE(queue_.HasRoom());
  queue_.Add(JobOf(1));
  EXPECT_FALSE(queue_.HasRoom());
  EXPECT_DOUBLE_EQ(queue_.progress(), 0.5);
  queue_.FinishBatch();
  EXPECT_EQ(queue_.batch(), 1u);
  EXPECT_DOUBLE_EQ(queue_.progress(), 0.75);
  EXPECT_EQ(queue_.Collect(), nullptr);
  queue_.FinishBatch();
  EXPECT_FALSE(queue_.HasBatch()) << "the job must be collected first";
  const auto job = queue_.Collect();
  ASSERT_NE(job, nullptr);
  EXPECT_FALSE(job->value.empty()) << "the weights are not copied";
  EXPECT_TRUE(queue_.HasBatch());
  EXPECT_EQ(queue_.batch(), 0u);
}

TEST_F(BatchQueueTest, AbandonKeepsComputedBatches) {
  queue_.Abandon();
  queue_.Add(JobOf(3));
  queue_.Add(JobOf(2));
  Compute();
  queue_.FinishBatch();
  queue_.Abandon();
  EXPECT_FALSE(queue_.HasBatch());
  auto job = queue_.Collect();
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(job->batches.size(), 1u);
  job = queue_.Collect();
  ASSERT_NE(job, nullptr);
  EXPECT_TRUE(job->batches.empty());
  EXPECT_FALSE(job->value.empty());
  EXPECT_TRUE(queue_.empty());
}

}  // namespace
}  // namespace troop
