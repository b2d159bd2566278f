#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "core/base/executor.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/sync/updater.h"
#include "tests/learners/dqn_testing.h"

namespace troop {
namespace {

constexpr std::int64_t kItems = 5, kSteps = 2;

std::unique_ptr<UpdateJob> JobOf(std::uint64_t first_seed, int batches, double progress) {
  auto job = std::make_unique<UpdateJob>();
  for (int i = 0; i < batches; ++i) {
    job->batches.push_back(RandomBatch(kItems, kSteps, first_seed + std::uint64_t(i)));
  }
  job->progress = progress;
  job->progress_step = 0.04;  // each update of a job has its own rate
  job->publish = true;
  return job;
}

class HogwildUpdaterTest : public testing::Test {
 protected:
  std::unique_ptr<Updater> MakeUpdater(int threads) {
    config_.learner.hogwild_threads = threads;
    algorithm_ = Make(config_);
    auto made = MakeHogwildUpdater({.config = &config_,
                                    .env = &env_,
                                    .incarnation = 7,
                                    .executor = &executor_,
                                    .algorithm = algorithm_.get()});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return std::move(made).value();
  }
  static std::unique_ptr<UpdateJob> Run(Updater* updater, std::unique_ptr<UpdateJob> job) {
    updater->Take(std::move(job));
    return updater->Collect();
  }

  TrainingConfig config_ = SmallConfig();
  const EnvSpec env_ = Env();
  InlineExecutor executor_;
  std::unique_ptr<Algorithm> algorithm_;
};

// Through targets that move in the middle of a job, a rate that falls, a clip, and a way back.
TEST_F(HogwildUpdaterTest, OneThreadMatchesUnthreadedLearnerBitForBit) {
  for (const OptimizerType type :
       {OptimizerType::kAdam, OptimizerType::kRmsProp, OptimizerType::kSgd, OptimizerType::kAdaGrad,
        OptimizerType::kRAdam}) {
    config_.optimizer.type = type;
    config_.optimizer.momentum = config_.optimizer.type == OptimizerType::kSgd ? 0.9 : 0;
    config_.optimizer.final_lr_fraction = 0.1;
    config_.learner.target_update_every_updates = 3;
    config_.learner.max_grad_norm = 0.5;
    const auto alone = Make(config_);
    const auto updater = MakeUpdater(1);
    TensorFile past;
    for (int round = 0; round < 4; ++round) {
      if (round == 2) {
        updater->StateChanges();
        ASSERT_TRUE(algorithm_->RollBack(past).ok());
        ASSERT_TRUE(alone->RollBack(past).ok());
      }
      const auto job = Run(updater.get(), JobOf(std::uint64_t(100 * round), 5, 0.2 * round));
      ASSERT_NE(job, nullptr);
      for (std::size_t i = 0; i < 5; ++i) {
        std::vector<float> priority(kItems);
        ASSERT_TRUE(alone->Update(job->batches[i], job->ProgressAt(i), priority).ok());
        EXPECT_EQ(job->priority[i], priority);
      }
      EXPECT_EQ(job->updates, alone->updates());
      const TensorFile ours = algorithm_->State(), theirs = alone->State();
      EXPECT_EQ(ours.metadata, theirs.metadata) << EnumName(type);
      for (const auto& [name, tensor] : theirs.tensors) {
        EXPECT_TRUE(std::ranges::equal(ours.tensors.at(name).bytes(), tensor.bytes()))
            << EnumName(type) << " " << name << " in round " << round;
      }
      if (round == 0) past = theirs;
    }
  }
}

TEST_F(HogwildUpdaterTest, ManyThreadsUseEachBatchOnce) {
  config_.optimizer.type = OptimizerType::kSgd;
  config_.optimizer.learning_rate = 1e-4;
  const auto updater = MakeUpdater(4);
  const std::vector<float> before(algorithm_->value().begin(), algorithm_->value().end());
  // The sum of the gradients, since the weights hardly change at this learning rate.
  std::vector<double> sum(before.size());
  const auto still = Make(config_);
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    std::vector<float> priority(kItems);
    const SampleBatch batch = RandomBatch(kItems, kSteps, seed);
    const auto report = still->ComputeGradient(batch, priority);
    ASSERT_TRUE(report.ok());
    const double scale = still->external_optimizer()->ClipScale(report->gradient_norm);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += scale * double(still->gradient()[i]);
  }
  for (int round = 0; round < 2; ++round) {
    const auto job = Run(updater.get(), JobOf(std::uint64_t(32 * round), 32, 0));
    EXPECT_TRUE(job->status.ok()) << job->status.ToString();
    EXPECT_EQ(job->updates, 32u * std::uint64_t(round + 1));
    for (const auto& priority : job->priority) EXPECT_EQ(priority.size(), std::size_t(kItems));
    EXPECT_EQ(job->value.size(), before.size() * sizeof(float));
  }
  EXPECT_EQ(algorithm_->updates(), 64u);
  double largest = 0, apart = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double moved = double(before[i]) - double(algorithm_->value()[i]);
    largest = std::max(largest, std::abs(1e-4 * sum[i]));
    apart = std::max(apart, std::abs(moved - 1e-4 * sum[i]));
  }
  EXPECT_LT(apart, 0.02 * largest) << "of " << largest;  // a lost batch of 64 is about that
}

TEST_F(HogwildUpdaterTest, SkipsOnlyBadBatch) {
  const auto updater = MakeUpdater(2);
  auto job = JobOf(0, 6, 0);
  job->batches[3].reward.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  job = Run(updater.get(), std::move(job));
  EXPECT_EQ(job->status.code(), Code::kDataLoss);
  ASSERT_EQ(job->skipped.size(), 1u);
  EXPECT_EQ(job->skipped.at(3).code(), Code::kDataLoss);
  EXPECT_EQ(job->updates, 5u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(job->priority[i].empty(), i == 3) << i;
  EXPECT_TRUE(job->weights.ok());
  EXPECT_TRUE(AllFinite(algorithm_->value()));
}

}  // namespace
}  // namespace troop
