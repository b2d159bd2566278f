#include "learners/learning_rate_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "learners/rl/beta_schedule.h"

namespace troop {
namespace {

TrainingConfig ConfigOf(std::int64_t updates, double warmup, double final_lr_fraction) {
  TrainingConfig config;
  config.run.max_updates = updates;
  config.optimizer.warmup_ratio = warmup;
  config.optimizer.final_lr_fraction = final_lr_fraction;
  return config;
}

std::vector<double> Rates(const TrainingConfig& config) {
  const auto updates = double(config.run.max_updates);
  std::vector<double> rates;
  for (double u = 0; u < updates; ++u) {
    rates.push_back(LearningRateSchedule(config).Fraction(u / updates));
  }
  return rates;
}

void ExpectRates(const TrainingConfig& config, const std::vector<double>& want) {
  const std::vector<double> got = Rates(config);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t u = 0; u < got.size(); ++u) EXPECT_NEAR(got[u], want[u], 1e-12) << u;
}

// The schedule was one update ahead: with final_lr_fraction = 0 the last update had no rate at all,
// and a run of one update changed nothing.
TEST(RateScheduleTest, SetsRatesOfFirstAndLastUpdate) {
  ExpectRates(ConfigOf(1, 0, 0), {1});
  ExpectRates(ConfigOf(1, 0.5, 0), {1});
  ExpectRates(ConfigOf(4, 0, 1), {1, 1, 1, 1});
  ExpectRates(ConfigOf(4, 0, 0), {1, 0.75, 0.5, 0.25});
  ExpectRates(ConfigOf(4, 0, 0.5), {1, 0.875, 0.75, 0.625});
  ExpectRates(ConfigOf(5, 0.4, 0), {0.5, 1, 1, 2.0 / 3, 1.0 / 3});
  ExpectRates(ConfigOf(5, 0.4, 1), {0.5, 1, 1, 1, 1});
  ExpectRates(ConfigOf(2, 0.9, 0), {1 / 1.8, 1});
}

// torch.optim.lr_scheduler.CosineAnnealingLR(T_max = 4, eta_min = 0 and 0.1), SequentialLR with a
// warm-up before it.
TEST(RateScheduleTest, CosineHasPyTorchsRates) {
  TrainingConfig config = ConfigOf(4, 0, 0);
  config.optimizer.lr_schedule = LrSchedule::kCosine;
  ExpectRates(config, {1, 0.85355339059327373, 0.5, 0.14644660940672627});
  config.optimizer.final_lr_fraction = 0.1;
  ExpectRates(config, {1, 0.86819805153394642, 0.55, 0.23180194846605365});
  config = ConfigOf(6, 1.0 / 3, 0);
  config.optimizer.lr_schedule = LrSchedule::kCosine;
  ExpectRates(config, {0.5, 1, 1, 0.85355339059327373, 0.5, 0.14644660940672627});
}

// MultiStepLR; thirds and tenths of a run are not exact in f64.
TEST(RateScheduleTest, StepMultipliesAtMilestones) {
  TrainingConfig config = ConfigOf(10, 0, 1);
  config.optimizer.lr_schedule = LrSchedule::kStep;
  config.optimizer.lr_milestones = {0.3, 0.7};
  ExpectRates(config, {1, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01});
  // The progress of a job's later updates is a sum, which may be rounded down.
  EXPECT_EQ(LearningRateSchedule(config).Fraction(std::nextafter(0.3, 0.0)), 0.1);
  config.optimizer.lr_milestone_factor = 0.5;
  config.optimizer.lr_milestones = {1.0 / 3, 2.0 / 3};
  ExpectRates(config, {1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25});
  config.run.max_updates = 3;
  ExpectRates(config, {1, 0.5, 0.25});
  // Every milestone of every length falls on the update that whole numbers give.
  for (std::int64_t updates = 1; updates <= 300; ++updates) {
    config.run.max_updates = updates;
    for (std::int64_t at = 1; at < updates; ++at) {
      config.optimizer.lr_milestones = {double(at) / double(updates)};
      const LearningRateSchedule schedule(config);
      EXPECT_EQ(schedule.Fraction(double(at - 1) / double(updates)), 1) << at << "/" << updates;
      EXPECT_EQ(schedule.Fraction(double(at) / double(updates)), 0.5) << at << "/" << updates;
    }
  }
  config = ConfigOf(10, 0.2, 1);
  config.optimizer.lr_schedule = LrSchedule::kStep;
  config.optimizer.lr_milestones = {0.5};
  ExpectRates(config, {0.5, 1, 1, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.1});
}

TEST(RateScheduleTest, RisesThenFallsAndIsNeverZero) {
  for (const std::int64_t updates : {1, 2, 3, 7, 100, 1001}) {
    for (const double warmup : {0.0, 0.01, 0.1, 0.5, 0.999}) {
      for (const double final_lr_fraction : {0.0, 0.1, 1.0}) {
        const std::vector<double> rates = Rates(ConfigOf(updates, warmup, final_lr_fraction));
        EXPECT_LE(rates[0], 1);
        bool falls = false;
        for (std::size_t u = 0; u < rates.size(); ++u) {
          EXPECT_GT(rates[u], 0);
          if (u == 0) continue;
          falls = falls || rates[u] < rates[u - 1] - 1e-12;
          const double most = falls ? rates[u - 1] + 1e-12 : 1 + 1e-12;
          EXPECT_LE(rates[u], most) << u;
        }
      }
    }
  }
}

// RateLimiter: of I items, samples_per_insert * (I - min_items) are drawn, within its band.
TEST(RateScheduleTest, DerivesUpdateCountFromReplayRatio) {
  TrainingConfig config = ConfigOf(0, 0, 0);
  config.run.total_steps = 1000;
  config.learner.batch_size = 32;
  config.replay.samples_per_insert = 8;
  config.replay.min_items = 200;
  EXPECT_DOUBLE_EQ(UpdatesExpected(config, 1), 800 * 8 / 32.0);
  EXPECT_DOUBLE_EQ(UpdatesExpected(config, 2), 800 * 8 / 32.0 / 2);
  config.insert_copies = 3;
  EXPECT_DOUBLE_EQ(UpdatesExpected(config, 1), (3000 - 200) * 8 / 32.0);
  config.insert_copies = 1;
  config.replay.min_items = 1000;
  EXPECT_EQ(UpdatesExpected(config, 1), 1) << "only the band allows some";
  config.replay.samples_per_insert = 0;
  EXPECT_EQ(UpdatesExpected(config, 1), 0);
  config.run.max_updates = 17;
  EXPECT_EQ(UpdatesExpected(config, 3), 17);
}

// Whole rollouts only; two learners make their updates together.
TEST(RateScheduleTest, DerivesUpdateCountFromRollouts) {
  TrainingConfig config = ConfigOf(0, 0, 0);
  config.run.total_steps = 1000;
  config.replay.samples_per_insert = 0;
  config.learner.rollout_epochs = 3;
  config.learner.rollout_minibatches = 4;
  config.rollout_steps = 128;
  EXPECT_EQ(UpdatesExpected(config, 1), 7 * 12);
  config.learners = 2;
  EXPECT_EQ(UpdatesExpected(config, 2), 3 * 12);
  config.rollout_steps = 2000;
  EXPECT_EQ(UpdatesExpected(config, 2), 1);
}

// Where updates follow the steps, news of the last ones may come before the last updates.
TEST(RateScheduleTest, KeepsPositiveRateAfterLastStep) {
  for (const double ratio : {0.0, 8.0}) {
    TrainingConfig config = ConfigOf(0, 0.1, 0);
    config.run.total_steps = 1000;
    config.replay.samples_per_insert = ratio;
    const LearningRateSchedule schedule(config);
    EXPECT_GT(schedule.Fraction(1), 0);
    EXPECT_GT(schedule.Fraction(2), 0);
    EXPECT_GT(schedule.Fraction(0), 0);
    EXPECT_NEAR(schedule.Fraction(0.1), 1, 1e-12);
  }
}

// Schaul et al. 2016, sec. 3.4: linear from β0 to 1, which is reached only at the end of learning.
TEST(BetaScheduleTest, RisesFromFirstToLastUpdate) {
  for (const std::int64_t updates : {2, 3, 37, 1000}) {
    TrainingConfig config = ConfigOf(updates, 0, 1);
    config.replay.beta = 0.4;
    config.replay.final_beta = 1;
    const BetaSchedule schedule(config);
    for (std::int64_t u = 0; u < updates; ++u) {
      EXPECT_NEAR(schedule.Beta(double(u) / double(updates)),
                  0.4 + 0.6 * double(u) / double(updates - 1), 1e-12);
    }
    EXPECT_EQ(schedule.Beta(0), 0.4);
    EXPECT_EQ(schedule.Beta(1), 1);
    EXPECT_EQ(schedule.Beta(2), 1);
  }
}

TEST(BetaScheduleTest, IsConstantWithoutFinalValueOrWithOneUpdate) {
  TrainingConfig config = ConfigOf(10, 0, 1);
  config.replay.beta = 0.7;
  for (const double over : {0.0, 0.3, 1.0}) EXPECT_EQ(BetaSchedule(config).Beta(over), 0.7);
  config = ConfigOf(1, 0, 1);
  config.replay.final_beta = 1;
  EXPECT_EQ(BetaSchedule(config).Beta(0), 0.4);
}

}  // namespace
}  // namespace troop
