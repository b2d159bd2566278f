#pragma once

// A small double DQN and batches for it.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/philox.h"
#include "learners/algorithm.h"

namespace troop {

inline constexpr std::int64_t kInputs = 3, kActions = 4, kHidden = 9;

inline EnvSpec Env() {
  EnvSpec env;
  env.id = "test";
  env.observation = {DType::kF32, {kInputs}};
  env.action.count = kActions;
  return env;
}

inline TrainingConfig SmallConfig() {
  TrainingConfig config;
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = kHidden;
  layer.activation = Activation::kTanh;
  config.network.layers = {layer};
  config.optimizer.epsilon = 0.01;  // far above rounding: the step is smooth in the gradient
  config.optimizer.learning_rate = 0.01;
  config.learner.gamma = 0.9;
  config.learner.target_update_every_updates = 2;
  return config;
}

inline std::unique_ptr<Algorithm> Make(const TrainingConfig& config) {
  auto made = MakeAlgorithm(config, Env());
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

inline SampleBatch EmptyBatch(std::int64_t items, std::int64_t steps) {
  SampleBatch b;
  const auto count = std::size_t(items);
  b.key.resize(count);
  b.probability.assign(count, 1.0 / double(items));
  b.weight.assign(count, 1);
  b.length.assign(count, std::int32_t(steps));
  b.policy_version.assign(count, 0);
  b.observation = Tensor(DType::kF32, {items, kInputs});
  b.next_observation = Tensor(DType::kF32, {items, kInputs});
  b.action = Tensor(DType::kI32, {items});
  b.reward = Tensor(DType::kF32, {items, steps});
  b.discount = Tensor(DType::kF32, {items, steps});
  std::ranges::fill(b.discount.as<float>(), 1.0f);
  return b;
}

inline SampleBatch RandomBatch(std::int64_t items, std::int64_t steps, std::uint64_t seed) {
  Rng rng({seed, Purpose::kTest});
  SampleBatch b = EmptyBatch(items, steps);
  for (float& x : b.observation.as<float>()) x = float(rng.Normal());
  for (float& x : b.next_observation.as<float>()) x = float(rng.Normal());
  for (std::size_t i = 0; i < std::size_t(items); ++i) {
    b.action.as<std::int32_t>()[i] = std::int32_t(rng.Below(kActions));
    b.weight[i] = float(rng.Uniform(0.2, 1));
    b.length[i] = std::int32_t(1 + rng.Below(std::uint32_t(steps)));
    const std::size_t first = i * std::size_t(steps), count = std::size_t(b.length[i]);
    for (std::size_t k = 0; k < count; ++k) b.reward.as<float>()[first + k] = float(rng.Normal());
    if (rng.Below(3) == 0) b.discount.as<float>()[first + count - 1] = 0;
  }
  return b;
}

}  // namespace troop
