#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "core/base/executor.h"
#include "core/base/philox.h"
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

// Sparse examples of two classes in an svmlight file, and the loss of weights on them in f64.
class SparseProblem {
 public:
  explicit SparseProblem(const std::string& path) {
    Rng rng({11, Purpose::kTest});
    std::ofstream file(path);
    for (int i = 0; i < kExamples; ++i) {
      labels_.push_back(rng.Below(2) == 1 ? 1 : -1);
      file << fmt::format("{:+d}", labels_.back());
      rows_.emplace_back();
      // Features with even indices are more frequent in one class.
      for (std::int32_t j = 0; j < kFeatures; ++j) {
        const bool likely = (j % 2 == 0) == (labels_.back() > 0);
        if (rng.Below(20) >= (likely ? 3u : 2u)) continue;
        rows_.back().push_back(j);
        file << fmt::format(" {}:1", j + 1);
      }
      file << '\n';
    }
    file << fmt::format("+1 {}:0.001\n", kFeatures);  // the width of all rows
  }
  double Loss(std::span<const float> weights) const {
    double sum = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      double z = double(weights[kFeatures]);
      for (const std::int32_t j : rows_[i]) z += double(weights[std::size_t(j)]);
      sum += std::log1p(std::exp(-labels_[i] * z));
    }
    return sum / kExamples;
  }

 private:
  static constexpr int kExamples = 400, kFeatures = 60;
  std::vector<int> labels_;
  std::vector<std::vector<std::int32_t>> rows_;
};

// Recht et al. 2011: sparse steps of several threads rarely meet. The bound is 1 % of the loss of
// one thread; each batch is used once, or the loss would be another.
TEST_F(HogwildUpdaterTest, ThreadsReachTheLossOfOneOnSparseRows) {
  constexpr int kJobs = 5, kBatches = 32;
  const std::string path = testing::TempDir() + "/hogwild_rows.svm";
  const SparseProblem problem(path);
  for (const LinearSolver solver : {LinearSolver::kSgd, LinearSolver::kAdaGrad}) {
    config_ = TrainingConfig();
    config_.learner.algorithm = AlgorithmKind::kClassifier;
    config_.learner.batch_size = 20;
    config_.model.architecture = ModelArchitecture::kLinear;
    config_.data.reviews = path;
    config_.data.validation_split = 0.01;
    config_.linear = {.solver = solver, .loss = LinearLoss::kLog, .l2 = 0};
    config_.optimizer.learning_rate = 0.1;
    config_.optimizer.type =
        solver == LinearSolver::kSgd ? OptimizerType::kSgd : OptimizerType::kAdaGrad;
    const auto alone = Make(config_);
    ASSERT_EQ(alone->external_optimizer(), nullptr);
    for (int i = 0; i < kJobs * kBatches; ++i) ASSERT_TRUE(alone->Update({}, 0, {}).ok());
    const double expected = problem.Loss(alone->value());
    ASSERT_LT(expected, 0.6);  // ln 2 of no weights
    for (const int threads : {2, 4, 8}) {
      const auto updater = MakeUpdater(threads);
      for (int i = 0; i < kJobs; ++i) {
        auto job = std::make_unique<UpdateJob>();
        job->batches.resize(kBatches);
        job = Run(updater.get(), std::move(job));
        ASSERT_TRUE(job->status.ok()) << job->status.ToString();
      }
      EXPECT_EQ(algorithm_->updates(), std::uint64_t(kJobs * kBatches));
      EXPECT_NEAR(problem.Loss(algorithm_->value()), expected, 0.01 * expected) << threads;
    }
  }
}

}  // namespace
}  // namespace troop
