#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/base/philox.h"
#include "learners/algorithm.h"
#include "nn/io/safetensors.h"
#include "replay/codec/sample_batch.h"

// Environment, random batches and states of the tests of algorithms with continuous actions.
namespace troop::test {

inline constexpr std::int64_t kContinuousInputs = 3, kContinuousActions = 2;

inline EnvSpec ContinuousEnv() {
  EnvSpec env;
  env.id = "test";
  env.observation = {DType::kF32, {kContinuousInputs}};
  env.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-2, 0}, .high = {2, 0.5f}};
  return env;
}

inline LayerConfig TanhLayer(std::int64_t units) {
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = units;
  layer.activation = Activation::kTanh;
  return layer;
}

inline std::unique_ptr<Algorithm> MakeContinuous(const TrainingConfig& config,
                                                 const EnvSpec& env = ContinuousEnv()) {
  auto made = MakeAlgorithm(config, env);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

inline SampleBatch EmptyContinuousBatch(std::int64_t items, std::int64_t steps,
                                        std::int64_t inputs = kContinuousInputs,
                                        std::int64_t actions = kContinuousActions) {
  SampleBatch b;
  const auto count = std::size_t(items);
  b.key.resize(count);
  b.probability.assign(count, 1.0 / double(items));
  b.weight.assign(count, 1);
  b.length.assign(count, std::int32_t(steps));
  b.policy_version.assign(count, 0);
  b.observation = Tensor(DType::kF32, {items, inputs});
  b.next_observation = Tensor(DType::kF32, {items, inputs});
  b.action = Tensor(DType::kF32, {items, actions});
  b.reward = Tensor(DType::kF32, {items, steps});
  b.discount = Tensor(DType::kF32, {items, steps});
  std::ranges::fill(b.discount.as<float>(), 1.0f);
  return b;
}

inline SampleBatch RandomContinuousBatch(std::int64_t items, std::int64_t steps,
                                         std::uint64_t seed) {
  Rng rng({seed, Purpose::kTest});
  SampleBatch b = EmptyContinuousBatch(items, steps);
  for (float& x : b.observation.as<float>()) x = float(rng.Normal());
  for (float& x : b.next_observation.as<float>()) x = float(rng.Normal());
  for (float& x : b.action.as<float>()) x = float(rng.Uniform(0, 0.5));
  for (std::size_t i = 0; i < std::size_t(items); ++i) {
    b.weight[i] = float(rng.Uniform(0.2, 1));
    b.length[i] = std::int32_t(1 + rng.Below(std::uint32_t(steps)));
    const std::size_t first = i * std::size_t(steps), count = std::size_t(b.length[i]);
    for (std::size_t k = 0; k < count; ++k) b.reward.as<float>()[first + k] = float(rng.Normal());
    if (rng.Below(3) == 0) b.discount.as<float>()[first + count - 1] = 0;
  }
  return b;
}

inline LossReport UpdateContinuous(Algorithm* algorithm, const SampleBatch& batch,
                                   double progress = 0, std::vector<float>* priority = nullptr) {
  std::vector<float> local(std::size_t(batch.size()));
  const auto report = algorithm->Update(batch, progress, priority != nullptr ? *priority : local);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? *report : LossReport{};
}

inline bool SameContinuousState(const TensorFile& a, const TensorFile& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (const auto& [name, tensor] : a.tensors) {
    const auto found = b.tensors.find(name);
    if (found == b.tensors.end() || !(found->second.spec() == tensor.spec())) return false;
    if (!std::ranges::equal(found->second.bytes(), tensor.bytes())) return false;
  }
  return true;
}

}  // namespace troop::test
