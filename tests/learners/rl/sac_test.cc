#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/philox.h"
#include "learners/rl/dpg.h"
#include "tests/learners/dpg_testing.h"
#include "tests/learners/sac_reference.h"

namespace troop {
namespace {

using test::ContinuousEnv;
using test::Doubles;
using test::EmptyContinuousBatch;
using test::MakeContinuous;
using test::RandomContinuousBatch;
using test::SacReference;
using test::SameContinuousState;
using test::TanhLayer;
using test::UpdateContinuous;
using ::testing::Each;
using ::testing::HasSubstr;

TrainingConfig SacConfig() {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kSac;
  config.network.layers = {TanhLayer(9)};
  config.network.critic_layers = {TanhLayer(11), TanhLayer(6)};
  config.optimizer.epsilon = 0.01;  // far above rounding: the step is smooth in the gradient
  config.optimizer.learning_rate = 0.01;
  config.learner.gamma = 0.9;
  config.learner.target_update_every_updates = 2;
  config.learner.target_tau = 0.25;
  config.learner.initial_temperature = 0.4;
  return config;
}

TEST(SacTest, UpdatesMatchF64ReferenceInEveryVariant) {
  for (int variant = 0; variant < 16; ++variant) {
    TrainingConfig config = SacConfig();
    config.learner.loss = variant & 1 ? TdLoss::kHuber : TdLoss::kMse;
    config.learner.max_grad_norm = variant & 2 ? 0.05 : 0;
    config.learner.learn_temperature = (variant & 4) == 0;
    config.learner.target_entropy = variant & 8 ? -0.7 : 0;
    config.optimizer.policy_learning_rate = variant & 1 ? 0.002 : 0;
    const auto sac = MakeContinuous(config);
    SacReference reference(config, ContinuousEnv());
    for (std::uint64_t step = 0; step < 6; ++step) {
      const SampleBatch batch = RandomContinuousBatch(step % 2 == 0 ? 5 : 8, 3, 100 + step);
      std::vector<float> priority(std::size_t(batch.size()), 0);
      const double alpha = std::exp(reference.value[reference.temperature]);
      const LossReport report = UpdateContinuous(sac.get(), batch, 0, &priority);
      reference.Update(batch);
      EXPECT_NEAR(report.loss, reference.loss, 1e-5);
      EXPECT_NEAR(report.gradient_norm, reference.norm, 1e-5);
      EXPECT_NEAR(report.temperature, alpha, 1e-5);
      EXPECT_NEAR(report.entropy, reference.entropy, 1e-4);
      for (std::size_t i = 0; i < priority.size(); ++i)
        EXPECT_NEAR(priority[i], reference.priority[i], 1e-5);
      for (std::size_t i = 0; i < reference.value.size(); ++i)
        ASSERT_NEAR(sac->value()[i], reference.value[i], 4e-6)
            << variant << " " << step << " " << i;
    }
    const TensorFile state = sac->State();
    const auto target = state.tensors.at("target").as<float>();
    for (std::size_t i = 0; i < target.size(); ++i)
      ASSERT_NEAR(target[i], reference.target[i], 4e-6) << variant;
  }
}

// Neither weight decay nor the other groups change a temperature that is not learned.
TEST(SacTest, FixedTemperatureStays) {
  TrainingConfig config = SacConfig();
  config.learner.learn_temperature = false;
  config.optimizer.weight_decay = 0.1;
  const auto sac = MakeContinuous(config);
  const std::size_t at = SacReference(config, ContinuousEnv()).temperature;
  for (std::uint64_t i = 0; i < 5; ++i)
    EXPECT_NEAR(UpdateContinuous(sac.get(), RandomContinuousBatch(6, 3, i)).temperature, 0.4, 1e-7);
  EXPECT_EQ(sac->value()[at], float(std::log(0.4)));
}

// An update by parameter shards or Hogwild threads clips as one of a single learner does.
TEST(SacTest, ClipLeavesTemperature) {
  TrainingConfig config = SacConfig();
  config.learner.max_grad_norm = 0.05;
  config.learner.target_entropy = -1000;
  const auto sac = MakeContinuous(config);
  const std::size_t at = SacReference(config, ContinuousEnv()).temperature;
  std::vector<float> priority(6);
  const auto report = sac->ComputeGradient(RandomContinuousBatch(6, 3, 1), priority);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_GT(report->gradient_norm, 0.1);
  EXPECT_LT(report->gradient_norm, 100);
  const float before = sac->gradient()[at];
  EXPECT_GT(std::abs(before), 500);
  sac->external_optimizer()->Clip(report->gradient_norm, sac->gradient());
  EXPECT_EQ(sac->gradient()[at], before);
  double squares = 0;
  for (std::size_t i = 0; i < sac->gradient().size(); ++i)
    squares += i == at ? 0 : std::pow(double(sac->gradient()[i]), 2);
  EXPECT_NEAR(std::sqrt(squares), 0.05, 1e-6);
}

// A gradient that is left out of the norm is checked, too.
TEST(SacTest, NormIsNotFiniteIfGradientOfTemperatureIsNot) {
  const auto sac = MakeContinuous(SacConfig());
  UpdateContinuous(sac.get(), RandomContinuousBatch(6, 3, 1));
  EXPECT_TRUE(std::isfinite(sac->GradientNorm()));
  sac->gradient()[SacReference(SacConfig(), ContinuousEnv()).temperature] =
      std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(sac->GradientNorm()));
}

// Each learner of a run has separate noise; the same learner repeats its noise.
TEST(SacTest, NoiseDependsOnLearnerOnly) {
  const SampleBatch batch = RandomContinuousBatch(8, 3, 1);
  const auto loss = [&](int learner) {
    const auto made = MakeAlgorithm(SacConfig(), ContinuousEnv(), {}, learner);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return UpdateContinuous(made->get(), batch).loss;
  };
  EXPECT_EQ(loss(1), loss(1));
  EXPECT_NE(loss(0), loss(1));
}

// A game of one step, r = 1 - (a - s)²: the mode becomes s, and the temperature makes the entropy
// that of the target.
TEST(SacTest, FindsBestActionAtTargetEntropy) {
  TrainingConfig config = SacConfig();
  config.learner.loss = TdLoss::kMse;
  config.learner.max_grad_norm = 0;
  config.learner.target_entropy = -1.5;
  config.learner.initial_temperature = 0.02;  // the learned one is 0.006
  config.network.layers = config.network.critic_layers = {TanhLayer(32), TanhLayer(32)};
  config.optimizer.epsilon = 1e-8;
  config.optimizer.learning_rate = 3e-3;
  config.optimizer.final_lr_fraction = 0.01;
  EnvSpec env = ContinuousEnv();
  env.observation = {DType::kF32, {1}};
  env.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-1}, .high = {1}};
  const auto sac = MakeContinuous(config, env);
  Rng rng({6, Purpose::kTest});
  SampleBatch b = EmptyContinuousBatch(64, 1, 1, 1);
  std::ranges::fill(b.discount.as<float>(), 0.0f);
  constexpr int kUpdates = 2000;
  double entropy = 0;
  for (int u = 0; u < kUpdates; ++u) {
    for (std::size_t i = 0; i < 64; ++i) {
      const float s = float(rng.Uniform(-0.6, 0.6)), a = float(rng.Uniform(-1, 1));
      b.observation.as<float>()[i] = s;
      b.action.as<float>()[i] = a;
      b.reward.as<float>()[i] = 1 - (a - s) * (a - s);
    }
    const LossReport report = UpdateContinuous(sac.get(), b, double(u) / kUpdates);
    if (u >= kUpdates - 200) entropy += report.entropy / 200;
  }
  EXPECT_NEAR(entropy, -1.5, 0.15);
  SacReference reference(config, env);
  const Doubles value(sac->value().begin(), sac->value().end());
  const double mode[] = {0};
  for (const double s : {-0.5, -0.2, 0.0, 0.3, 0.5})
    EXPECT_NEAR(reference.Act(value, {s}, mode).action[0], s, 0.12);
}

TEST(SacTest, RestoredStateContinuesBitForBit) {
  TrainingConfig config = SacConfig();
  config.network.normalize_observations = true;
  const auto first = MakeContinuous(config);
  for (std::uint64_t i = 0; i < 4; ++i)
    UpdateContinuous(first.get(), RandomContinuousBatch(6, 3, i));
  const auto read = DecodeSafetensors(EncodeSafetensors(first->State()));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  const auto second = MakeContinuous(config);
  ASSERT_TRUE(second->SetState(*read).ok());
  for (std::uint64_t i = 4; i < 10; ++i) {
    UpdateContinuous(first.get(), RandomContinuousBatch(6, 3, i));
    UpdateContinuous(second.get(), RandomContinuousBatch(6, 3, i));
  }
  EXPECT_TRUE(SameContinuousState(first->State(), second->State()));
}

TEST(SacTest, RejectsNonFiniteBatchWithoutChange) {
  const auto sac = MakeContinuous(SacConfig());
  UpdateContinuous(sac.get(), RandomContinuousBatch(6, 3, 1));
  const TensorFile before = sac->State();
  SampleBatch batch = RandomContinuousBatch(6, 3, 2);
  batch.next_observation.as<float>()[4] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> priority(6, -1);
  EXPECT_EQ(sac->Update(batch, 0, priority).status().code(), Code::kDataLoss);
  EXPECT_THAT(priority, Each(-1.0f));
  EXPECT_TRUE(SameContinuousState(sac->State(), before));
}

TEST(SacTest, RejectsUnsupportedConfig) {
  EnvSpec discrete = ContinuousEnv();
  discrete.action = {.count = 2};
  EXPECT_THAT(MakeAlgorithm(SacConfig(), discrete).status().message(),
              HasSubstr("set learner.algorithm = \"dqn\""));
  TrainingConfig config = SacConfig();
  config.learner.critic = CriticKind::kQuantile;
  EXPECT_THAT(MakeAlgorithm(config, ContinuousEnv()).status().message(),
              HasSubstr("learner.critic is \"quantile\", but sac needs \"scalar\""));
  config = SacConfig();
  config.learner.initial_temperature = 0;
  EXPECT_THAT(MakeAlgorithm(config, ContinuousEnv()).status().message(),
              HasSubstr("learner.initial_temperature is 0, must be above 0"));
}

}  // namespace
}  // namespace troop
