#include "learners/rl/dpg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/base/philox.h"
#include "tests/learners/dpg_reference.h"
#include "tests/learners/dpg_testing.h"

namespace troop {
namespace {

using test::ContinuousEnv;
using test::Doubles;
using test::DpgReference;
using test::EmptyContinuousBatch;
using test::MakeContinuous;
using test::RandomContinuousBatch;
using test::SameContinuousState;
using test::TanhLayer;
using test::UpdateContinuous;
using ::testing::HasSubstr;

TrainingConfig SmallConfig() {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kDpg;
  config.network.layers = {TanhLayer(9)};
  config.network.critic_layers = {TanhLayer(11), TanhLayer(6)};
  config.optimizer.epsilon = 0.01;  // far above rounding: the step is smooth in the gradient
  config.optimizer.learning_rate = 0.01;
  config.learner.gamma = 0.9;
  config.learner.target_update_every_updates = 2;
  config.learner.atoms = 7;
  config.learner.v_min = -3;
  config.learner.v_max = 4;
  return config;
}

TEST(DpgTest, UpdatesMatchF64ReferenceInEveryVariant) {
  constexpr CriticKind forms[] = {CriticKind::kScalar, CriticKind::kCategorical,
                                  CriticKind::kQuantile};
  for (int variant = 0; variant < 96; ++variant) {
    TrainingConfig config = SmallConfig();
    config.learner.critic = forms[variant / 32];
    config.learner.loss = variant & 2 ? TdLoss::kHuber : TdLoss::kMse;
    config.learner.action_gradient_clip = variant & 4 ? 0.02 : 0;
    config.learner.max_grad_norm = variant & 8 ? 0.05 : 0;
    config.learner.target_tau = variant & 16 ? 0.25 : 1;
    config.optimizer.policy_learning_rate = variant & 1 ? 0.002 : 0;
    config.optimizer.final_lr_fraction = 0.5;
    const auto dpg = MakeContinuous(config);
    DpgReference reference(config, ContinuousEnv());
    for (std::uint64_t step = 0; step < 6; ++step) {
      const std::int64_t items = step % 2 == 0 ? 5 : 8;  // the batch may change its size
      const SampleBatch batch = RandomContinuousBatch(items, 3, 100 + step);
      std::vector<float> priority(std::size_t(batch.size()), 0);
      const double progress = double(step) / 6;
      const LossReport report = UpdateContinuous(dpg.get(), batch, progress, &priority);
      reference.Update(batch, progress);
      EXPECT_NEAR(report.loss, reference.loss, 1e-5);
      EXPECT_NEAR(report.gradient_norm, reference.norm, 1e-5);
      for (std::size_t i = 0; i < priority.size(); ++i) {
        EXPECT_NEAR(priority[i], reference.priority[i], 1e-5);
      }
      for (std::size_t i = 0; i < reference.value.size(); ++i) {
        ASSERT_NEAR(dpg->value()[i], reference.value[i], 4e-6) << variant << " " << step;
      }
    }
    const TensorFile state = dpg->State();
    const auto target = state.tensors.at("target").as<float>();
    for (std::size_t i = 0; i < target.size(); ++i) {
      ASSERT_NEAR(target[i], reference.target[i], 4e-6) << variant;
    }
  }
}

TrainingConfig Td3Config() {
  TrainingConfig config = SmallConfig();
  config.learner.algorithm = AlgorithmKind::kTd3;
  config.learner.target_policy_noise = 0.4;  // often beyond the clip and the bounds
  config.learner.target_noise_clip = 0.5;
  config.learner.target_tau = 0.25;
  return config;
}

TEST(DpgTest, Td3UpdatesMatchF64ReferenceInEveryVariant) {
  for (int variant = 0; variant < 48; ++variant) {
    TrainingConfig config = Td3Config();
    config.learner.policy_delay = 1 + variant % 3;
    config.learner.target_policy_noise = variant % 2 ? 0.4 : 0;
    config.learner.loss = variant & 4 ? TdLoss::kHuber : TdLoss::kMse;
    config.learner.max_grad_norm = variant & 8 ? 0.05 : 0;
    config.learner.action_gradient_clip = variant & 16 ? 0.02 : 0;
    config.optimizer.policy_learning_rate = variant & 1 ? 0.002 : 0;
    const auto td3 = MakeContinuous(config);
    DpgReference reference(config, ContinuousEnv());
    for (std::uint64_t step = 0; step < 6; ++step) {
      const SampleBatch batch = RandomContinuousBatch(step % 2 == 0 ? 5 : 8, 3, 100 + step);
      std::vector<float> priority(std::size_t(batch.size()), 0);
      const LossReport report = UpdateContinuous(td3.get(), batch, 0, &priority);
      reference.Update(batch, 0);
      EXPECT_NEAR(report.loss, reference.loss, 1e-5);
      EXPECT_NEAR(report.gradient_norm, reference.norm, 1e-5);
      for (std::size_t i = 0; i < priority.size(); ++i)
        EXPECT_NEAR(priority[i], reference.priority[i], 1e-5);
      for (std::size_t i = 0; i < reference.value.size(); ++i)
        ASSERT_NEAR(td3->value()[i], reference.value[i], 4e-6) << variant << " " << step;
    }
  }
}

// Each learner of a run has separate noise; the same learner repeats its noise.
TEST(DpgTest, Td3NoiseDependsOnLearnerOnly) {
  const SampleBatch batch = RandomContinuousBatch(8, 3, 1);
  const auto loss = [&](int learner) {
    const auto made = MakeAlgorithm(Td3Config(), ContinuousEnv(), {}, learner);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return UpdateContinuous(made->get(), batch).loss;
  };
  EXPECT_EQ(loss(1), loss(1));
  EXPECT_NE(loss(0), loss(1));
}

// ---- Learning.

// A game of one step, r = 1 - (a - s)²: the best action is s itself, worth 1.
TEST(DpgTest, FindsBestActionOfEachState) {
  for (const CriticKind critic :
       {CriticKind::kScalar, CriticKind::kCategorical, CriticKind::kQuantile}) {
    TrainingConfig config = SmallConfig();
    config.learner.critic = critic;
    config.learner.loss = TdLoss::kMse;
    config.learner.atoms = 31;
    config.learner.v_min = -4;
    config.learner.v_max = 2;
    config.network.layers = config.network.critic_layers = {TanhLayer(32), TanhLayer(32)};
    config.optimizer.epsilon = 1e-8;
    config.optimizer.learning_rate = 3e-3;
    config.optimizer.policy_learning_rate = 1e-3;
    config.optimizer.final_lr_fraction = 0.01;
    EnvSpec env = ContinuousEnv();
    env.observation = {DType::kF32, {1}};
    env.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-1}, .high = {1}};
    const auto dpg = MakeContinuous(config, env);
    Rng rng({6, Purpose::kTest});
    SampleBatch b = EmptyContinuousBatch(64, 1, 1, 1);
    std::ranges::fill(b.discount.as<float>(), 0.0f);
    constexpr int kUpdates = 1500;
    for (int u = 0; u < kUpdates; ++u) {
      for (std::size_t i = 0; i < 64; ++i) {
        const float s = float(rng.Uniform(-0.8, 0.8)), a = float(rng.Uniform(-1, 1));
        b.observation.as<float>()[i] = s;
        b.action.as<float>()[i] = a;
        b.reward.as<float>()[i] = 1 - (a - s) * (a - s);
      }
      UpdateContinuous(dpg.get(), b, double(u) / kUpdates);
    }
    DpgReference reference(config, env);
    const Doubles value(dpg->value().begin(), dpg->value().end());
    for (const double s : {-0.7, -0.2, 0.0, 0.4, 0.7}) {
      const Doubles action = reference.Act(value, {s});
      EXPECT_NEAR(action[0], s, 0.12) << EnumName(critic);
      EXPECT_NEAR(reference.Judge(value, {s}, action), 1, 0.12) << EnumName(critic);
    }
  }
}

// ---- State.

TEST(DpgTest, RestoredStateContinuesBitForBit) {
  for (const CriticKind critic :
       {CriticKind::kScalar, CriticKind::kCategorical, CriticKind::kQuantile}) {
    TrainingConfig config = SmallConfig();
    config.learner.critic = critic;
    config.network.layers[0].units = 300;  // packed weights
    config.network.normalize_observations = true;
    const auto first = MakeContinuous(config);
    for (std::uint64_t i = 0; i < 3; ++i)
      UpdateContinuous(first.get(), RandomContinuousBatch(6, 3, i));
    // Through the bytes of a file, into an algorithm that started elsewhere.
    const auto read = DecodeSafetensors(EncodeSafetensors(first->State()));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    config.seed = 77;
    const auto second = MakeContinuous(config);
    UpdateContinuous(second.get(), RandomContinuousBatch(6, 3, 50));
    ASSERT_TRUE(second->SetState(*read).ok());
    EXPECT_EQ(second->updates(), 3u);
    for (std::uint64_t i = 3; i < 8; ++i) {
      UpdateContinuous(first.get(), RandomContinuousBatch(6, 3, i));
      UpdateContinuous(second.get(), RandomContinuousBatch(6, 3, i));
    }
    EXPECT_TRUE(SameContinuousState(first->State(), second->State())) << EnumName(critic);
  }
}

// Saved between two updates of the policy: the delay continues where it was.
TEST(DpgTest, RestoredTd3ContinuesBitForBit) {
  TrainingConfig config = Td3Config();
  config.learner.policy_delay = 3;
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

TEST(DpgTest, RejectsMismatchedStateWithoutChange) {
  const auto dpg = MakeContinuous(SmallConfig());
  UpdateContinuous(dpg.get(), RandomContinuousBatch(6, 3, 1));
  const TensorFile before = dpg->State();
  std::vector<TensorFile> bad(8, before);
  bad[0].tensors.erase("target");
  bad[1].tensors["value"] = Tensor(DType::kF32, {3});
  bad[2].tensors["optimizer.v"] = Tensor(DType::kF64, before.tensors.at("value").shape());
  bad[3].metadata.erase("updates");
  bad[4].metadata["updates"] = "3x";
  bad[5].metadata["optimizer_steps"] = "-1";
  bad[6].metadata["optimizer"] = "rmsprop";
  bad[7].metadata["algorithm"] = "dqn";
  for (std::size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(dpg->SetState(bad[i]).code(), Code::kInvalidArgument) << i;
    EXPECT_TRUE(SameContinuousState(dpg->State(), before)) << i;
  }
}

TEST(DpgTest, CountsRollbackAsUpdate) {
  const auto dpg = MakeContinuous(SmallConfig());
  UpdateContinuous(dpg.get(), RandomContinuousBatch(6, 3, 1));
  const TensorFile old = dpg->State();
  for (std::uint64_t i = 0; i < 4; ++i) UpdateContinuous(dpg.get(), RandomContinuousBatch(6, 3, i));
  ASSERT_TRUE(dpg->RollBack(old).ok());
  EXPECT_EQ(dpg->updates(), 6u);
  const auto value = old.tensors.at("value").as<float>();
  EXPECT_TRUE(std::ranges::equal(dpg->value(), value));
}

// ---- What goes wrong.

TEST(DpgTest, RejectsNonFiniteBatchWithoutChange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto poison = std::vector<std::function<void(SampleBatch&)>>{
      [&](SampleBatch& b) { b.reward.as<float>()[0] = nan; },
      [&](SampleBatch& b) { b.observation.as<float>()[1] = nan; },
      [&](SampleBatch& b) { b.action.as<float>()[3] = nan; },
      [&](SampleBatch& b) { b.weight[2] = nan; },
  };
  for (const CriticKind critic :
       {CriticKind::kScalar, CriticKind::kCategorical, CriticKind::kQuantile}) {
    TrainingConfig config = SmallConfig();
    config.learner.critic = critic;
    // The scalar critics are twins.
    if (critic == CriticKind::kScalar) config.learner.algorithm = AlgorithmKind::kTd3;
    const auto dpg = MakeContinuous(config);
    UpdateContinuous(dpg.get(), RandomContinuousBatch(6, 3, 1));
    const TensorFile before = dpg->State();
    for (std::size_t i = 0; i < poison.size(); ++i) {
      SampleBatch batch = RandomContinuousBatch(6, 3, 2);
      poison[i](batch);
      std::vector<float> priority(6, -1);
      const auto report = dpg->Update(batch, 0, priority);
      EXPECT_EQ(report.status().code(), Code::kDataLoss) << i;
      EXPECT_THAT(priority, ::testing::Each(-1.0f)) << i;
      EXPECT_TRUE(SameContinuousState(dpg->State(), before)) << i;
      if (i != 2) continue;
      EXPECT_THAT(report.status().message(), HasSubstr("action[1] of item 1"));
    }
  }
}

TEST(DpgTest, RejectsMismatchedBatch) {
  const auto dpg = MakeContinuous(SmallConfig());
  std::vector<float> priority(6);
  SampleBatch batch = RandomContinuousBatch(6, 3, 1);
  batch.action = Tensor(DType::kF32, {6, 3});
  const auto report = dpg->Update(batch, 0, priority);
  EXPECT_EQ(report.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(report.status().message(), HasSubstr("action is f32[6, 3], not f32[6, 2]"));
  batch = RandomContinuousBatch(6, 3, 1);
  batch.length[4] = 4;
  EXPECT_EQ(dpg->Update(batch, 0, priority).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(dpg->updates(), 0u);
}

TEST(DpgTest, RejectsUnsupportedConfig) {
  TrainingConfig config = SmallConfig();
  config.learner.critic = CriticKind::kCategorical;
  config.learner.v_max = config.learner.v_min;
  EXPECT_EQ(MakeAlgorithm(config, ContinuousEnv()).status().code(), Code::kInvalidArgument);
  EnvSpec discrete = ContinuousEnv();
  discrete.action = {.count = 2};
  EXPECT_EQ(MakeAlgorithm(SmallConfig(), discrete).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MakeAlgorithm(Td3Config(), discrete).status().code(), Code::kInvalidArgument);
  TrainingConfig twins = Td3Config();
  twins.learner.critic = CriticKind::kQuantile;
  EXPECT_THAT(MakeAlgorithm(twins, ContinuousEnv()).status().message(),
              HasSubstr("learner.critic is \"quantile\", but td3 needs \"scalar\""));
  twins = Td3Config();
  twins.learner.policy_delay = 0;
  EXPECT_EQ(MakeAlgorithm(twins, ContinuousEnv()).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
