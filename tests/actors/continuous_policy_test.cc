#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "actors/policy.h"
#include "core/base/philox.h"
#include "tests/learners/dpg_reference.h"
#include "tests/learners/sac_reference.h"

namespace troop {
namespace {

using test::Doubles;
using test::DpgReference;
using test::SacReference;

constexpr int kActions = 2;

EnvSpec Env() {
  EnvSpec env;
  env.id = "test";
  env.observation = {DType::kF32, {3}};
  env.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-2, 0}, .high = {2, 0.5f}};
  return env;
}

ActingConfig SmallConfig(CriticKind critic = CriticKind::kScalar) {
  ActingConfig config;
  config.model.algorithm = AlgorithmKind::kDpg;
  config.model.critic = critic;
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = 8;
  layer.activation = Activation::kTanh;
  config.model.network.layers = {layer};
  return config;
}

// A learner of the same network.
TrainingConfig Training(const ActingConfig& config) {
  TrainingConfig training;
  training.network = config.model.network;
  training.learner.algorithm = config.model.algorithm;
  training.learner.critic = config.model.critic;
  return training;
}

std::unique_ptr<Policy> MakePolicy(int size, const ActingConfig& config = SmallConfig()) {
  auto policy = MakeLocalPolicy(config, Env(), size);
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  return std::move(*policy);
}

Tensor RandomObservations(int size) {
  Tensor observation(DType::kF32, {size, 3});
  Rng rng({});
  for (float& x : observation.as<float>()) x = float(rng.Normal());
  return observation;
}

std::vector<float> Actions(Policy* policy, const Tensor& observation,
                           std::span<const ExploreKey> keys) {
  policy->Submit(observation, keys);
  const std::span<const float> a = policy->Poll()->action.as<float>();
  return {a.begin(), a.end()};
}

TEST(ContinuousPolicyTest, MatchesNetworkActionAndCriticValueWithoutNoise) {
  const int size = 16;
  for (const CriticKind critic : {CriticKind::kScalar, CriticKind::kCategorical}) {
    const ActingConfig config = SmallConfig(critic);
    const auto policy = MakePolicy(size, config);
    DpgReference reference(Training(config), Env());
    const Tensor observation = RandomObservations(size);
    policy->Submit(observation, std::vector<ExploreKey>(size));
    const PolicyOutput* output = policy->Poll();
    for (int i = 0; i < size; ++i) {
      const auto at = std::size_t(i);
      const Doubles x = DpgReference::Row(observation, i);
      const Doubles action = reference.Act(reference.value, x);
      for (std::size_t k = 0; k < kActions; ++k) {
        EXPECT_NEAR(output->action.as<float>()[at * kActions + k], action[k], 1e-5);
      }
      const double q = reference.Judge(reference.value, x, action);
      EXPECT_NEAR(output->q_max.as<float>()[at], q, 1e-3);  // of 300 between the atoms
      EXPECT_EQ(output->q_taken.as<float>()[at], output->q_max.as<float>()[at]);
    }
    EXPECT_EQ(policy->Poll(), nullptr);
  }
}

TEST(ContinuousPolicyTest, CriticEvaluatesNoisyActions) {
  const int size = 16;
  for (const CriticKind critic : {CriticKind::kScalar, CriticKind::kCategorical}) {
    const ActingConfig config = SmallConfig(critic);
    const auto policy = MakePolicy(size, config);
    DpgReference reference(Training(config), Env());
    const Tensor observation = RandomObservations(size);
    std::vector<ExploreKey> keys(size);
    for (int i = 0; i < size; ++i) {
      keys[std::size_t(i)] = {.env = std::uint64_t(i), .noise_sigma = i % 2 ? 0.5 : 0};
    }
    policy->Submit(observation, keys);
    const PolicyOutput* output = policy->Poll();
    for (int i = 0; i < size; ++i) {
      const auto at = std::size_t(i);
      const Doubles x = DpgReference::Row(observation, i);
      const std::span<const float> row =
          output->action.as<float>().subspan(at * kActions, kActions);
      const double taken = reference.Judge(reference.value, x, {row.begin(), row.end()});
      const double own = reference.Judge(reference.value, x, reference.Act(reference.value, x));
      EXPECT_NEAR(output->q_taken.as<float>()[at], taken, 1e-3);
      EXPECT_NEAR(output->q_max.as<float>()[at], own, 1e-3);
      EXPECT_EQ(output->q.as<float>()[2 * at], output->q_taken.as<float>()[at]);
      EXPECT_EQ(output->q.as<float>()[2 * at + 1], output->q_max.as<float>()[at]);
    }
  }
}

TEST(ContinuousPolicyTest, NoiseIsNormalScaledByHalfRange) {
  const int size = 4000;
  const auto policy = MakePolicy(size);
  const Tensor observation(DType::kF32, {size, 3});
  const std::vector<float> own = Actions(policy.get(), observation, std::vector<ExploreKey>(size));
  std::vector<ExploreKey> keys(size);
  const double sigma = 0.1;  // small: hardly any is cut off
  for (int i = 0; i < size; ++i) {
    keys[std::size_t(i)] = {.env = std::uint64_t(i), .episode = 3, .step = 5, .noise_sigma = sigma};
  }
  const std::vector<float> noisy = Actions(policy.get(), observation, keys);
  double both = 0;
  for (std::size_t k = 0; k < kActions; ++k) {
    const double half = k == 0 ? 2 : 0.25;
    double sum = 0, squares = 0;
    int far = 0;
    for (std::size_t i = 0; i < std::size_t(size); ++i) {
      const double z = double(noisy[i * kActions + k] - own[i * kActions + k]) / (half * sigma);
      sum += z;
      squares += z * z;
      far += std::abs(z) > 1;
      if (k == 0) both += z * double(noisy[i * kActions + 1] - own[i * kActions + 1]) / 0.025;
    }
    // The stream is fixed by its key: these pass always or never. Five standard deviations.
    EXPECT_NEAR(sum / size, 0, 5 / std::sqrt(size));
    EXPECT_NEAR(squares / size, 1, 5 * std::sqrt(2.0 / size));
    EXPECT_NEAR(far / double(size), 0.3173, 5 * std::sqrt(0.3173 * 0.6827 / size));
  }
  EXPECT_NEAR(both / size, 0, 5 / std::sqrt(size));  // each action component has independent noise
}

TEST(ContinuousPolicyTest, ActionsStayWithinBounds) {
  const int size = 500;
  const auto policy = MakePolicy(size);
  std::vector<ExploreKey> keys(size);
  for (int i = 0; i < size; ++i) keys[std::size_t(i)] = {.env = std::uint64_t(i), .noise_sigma = 1};
  const std::vector<float> a = Actions(policy.get(), RandomObservations(size), keys);
  int at_a_bound = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float low = i % 2 ? 0 : -2, high = i % 2 ? 0.5f : 2;
    EXPECT_GE(a[i], low);
    EXPECT_LE(a[i], high);
    at_a_bound += a[i] == low || a[i] == high;
  }
  EXPECT_GT(at_a_bound, 50);
}

// Samples of a stochastic policy are normal before they are squashed; without noise the action is
// the mode.
TEST(ContinuousPolicyTest, SacSamplesItsPolicy) {
  const int size = 4000;
  ActingConfig config = SmallConfig();
  config.model.algorithm = AlgorithmKind::kSac;
  const auto policy = MakePolicy(size, config);
  SacReference reference(Training(config), Env());
  const Tensor observation = RandomObservations(size);
  std::vector<ExploreKey> keys(size);
  const std::vector<float> modes = Actions(policy.get(), observation, keys);
  for (int i = 0; i < size; ++i)
    keys[std::size_t(i)] = {.env = std::uint64_t(i), .episode = 3, .step = 5, .noise_sigma = 1};
  policy->Submit(observation, keys);
  const PolicyOutput output = *policy->Poll();
  const auto actions = output.action.as<float>();
  const double none[] = {0, 0}, one[] = {1, 1};
  double sum = 0, squares = 0;
  for (int i = 0; i < size; ++i) {
    const auto at = std::size_t(i);
    const Doubles x = DpgReference::Row(observation, i);
    const Doubles mode = reference.Act(reference.value, x, none).action;
    const Doubles upper = reference.Act(reference.value, x, one).action;
    Doubles taken;
    for (std::size_t k = 0; k < kActions; ++k) {
      const double a = actions[at * kActions + k];
      EXPECT_NEAR(modes[at * kActions + k], mode[k], 1e-5);
      // Back to standard deviations from the mean.
      const double middle = k == 0 ? 0 : 0.25, half = k == 0 ? 2 : 0.25;
      const auto before = [&](double y) { return std::atanh((y - middle) / half); };
      const double z = (before(a) - before(mode[k])) / (before(upper[k]) - before(mode[k]));
      sum += z;
      squares += z * z;
      taken.push_back(a);
    }
    EXPECT_NEAR(output.q_taken.as<float>()[at], reference.Judge(reference.value, 0, x, taken),
                1e-4);
    EXPECT_NEAR(output.q_max.as<float>()[at], reference.Judge(reference.value, 0, x, mode), 1e-4);
  }
  // The stream is fixed by its key: these pass always or never. Five standard deviations.
  const double count = double(size) * kActions;
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2 / count));
  const std::vector<float> first(actions.begin(), actions.end());
  EXPECT_EQ(Actions(policy.get(), observation, keys), first);
}

TEST(ContinuousPolicyTest, RandomActionsAreUniform) {
  const int size = 4000;
  const auto policy = MakePolicy(size);
  std::vector<ExploreKey> keys(size);
  for (int i = 0; i < size; ++i) {
    keys[std::size_t(i)] = {.env = std::uint64_t(i), .epsilon = 1, .noise_sigma = 0.3};
  }
  const std::vector<float> a = Actions(policy.get(), Tensor(DType::kF32, {size, 3}), keys);
  for (std::size_t k = 0; k < kActions; ++k) {
    std::vector<int> count(8);
    for (std::size_t i = 0; i < std::size_t(size); ++i) {
      const float low = k == 0 ? -2 : 0, wide = k == 0 ? 4 : 0.5f;
      const int bin = int((a[i * kActions + k] - low) / wide * 8);
      ++count[std::size_t(std::min(bin, 7))];
    }
    for (const int c : count) EXPECT_NEAR(c, size / 8, 5 * std::sqrt(size / 8.0 * 7 / 8));
  }
}

TEST(ContinuousPolicyTest, RandomnessDependsOnlyOnKey) {
  const int size = 24;
  const auto together = MakePolicy(size), alone = MakePolicy(1);
  std::vector<ExploreKey> keys;
  for (int i = 0; i < size; ++i) {
    keys.push_back({.env = std::uint64_t(i % 4),
                    .episode = std::uint64_t(i % 3) << 32,
                    .step = std::uint64_t(i),
                    .epsilon = 0.5,
                    .noise_sigma = 0.2});
  }
  const std::vector<float> batch = Actions(together.get(), Tensor(DType::kF32, {size, 3}), keys);
  for (int i = size - 1; i >= 0; --i) {
    const std::vector<ExploreKey> key{keys[std::size_t(i)]};
    const std::vector<float> one = Actions(alone.get(), Tensor(DType::kF32, {1, 3}), key);
    for (std::size_t k = 0; k < kActions; ++k) {
      EXPECT_NEAR(one[k], batch[std::size_t(i) * kActions + k], 1e-6);
    }
  }
}

TEST(ContinuousPolicyTest, ConsecutiveStepsShareNoNoise) {
  const auto policy = MakePolicy(1);
  const Tensor observation(DType::kF32, {1, 3});
  const std::vector<float> own = Actions(policy.get(), observation, std::vector<ExploreKey>(1));
  std::vector<double> seen;
  for (std::uint64_t step = 0; step < 50; ++step) {
    const std::vector<ExploreKey> key{{.step = step, .noise_sigma = 0.05}};
    const std::vector<float> a = Actions(policy.get(), observation, key);
    seen.push_back(double(a[0] - own[0]) / 2);
    seen.push_back(double(a[1] - own[1]) / 0.25);
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_GT(std::abs(seen[i] - seen[j]), 1e-8);
  }
}

TEST(ContinuousPolicyTest, NaNWeightsGiveNaNQButFiniteActions) {
  const auto policy = MakePolicy(1);
  const std::size_t count = DpgReference(Training(SmallConfig()), Env()).value.size();
  ASSERT_TRUE(policy->SetWeights(1, std::vector<float>(count, NAN)).ok());
  policy->Submit(Tensor(DType::kF32, {1, 3}), std::vector<ExploreKey>(1));
  const PolicyOutput* output = policy->Poll();
  for (const float a : output->action.as<float>()) EXPECT_TRUE(std::isfinite(a));
  EXPECT_TRUE(std::isnan(output->q.as<float>()[1]));
  EXPECT_EQ(policy->SetWeights(1, std::vector<float>(3)).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
