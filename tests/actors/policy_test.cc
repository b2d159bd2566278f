#include "actors/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>

#include "core/base/philox.h"
#include "nn/models/model.h"

namespace troop {
namespace {

constexpr int kActions = 3;

EnvSpec Env() {
  EnvSpec env;
  env.id = "test";
  env.observation = {DType::kF32, {2}};
  env.action.count = kActions;
  return env;
}

ActingConfig SmallConfig() {
  ActingConfig config;
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = 8;
  config.model.network.layers = {layer};
  config.model.network.dueling = false;
  return config;
}

std::unique_ptr<Policy> MakePolicy(int size, const ActingConfig& config = SmallConfig()) {
  auto policy = MakeLocalPolicy(config, Env(), size);
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  return std::move(*policy);
}

std::vector<std::int32_t> Actions(Policy* policy, const Tensor& observation,
                                  std::span<const ExploreKey> keys) {
  policy->Submit(observation, keys);
  const std::span<const std::int32_t> a = policy->Poll()->action.as<std::int32_t>();
  return {a.begin(), a.end()};
}

TEST(LocalPolicyTest, GreedyActionHasLargestQ) {
  const int size = 64;
  const auto policy = MakePolicy(size);
  Tensor observation(DType::kF32, {size, 2});
  Rng rng({});
  for (float& x : observation.as<float>()) x = float(rng.Normal());
  const std::vector<ExploreKey> keys(size);  // ε = 0
  policy->Submit(observation, keys);
  const PolicyOutput* output = policy->Poll();
  for (std::size_t i = 0; i < size; ++i) {
    const float* q = output->q.data<float>() + i * kActions;
    const auto chosen = std::size_t(output->action.as<std::int32_t>()[i]);
    for (std::size_t a = 0; a < kActions; ++a) EXPECT_LE(q[a], q[chosen]);
    EXPECT_EQ(output->q_max.as<float>()[i], q[chosen]);
    EXPECT_EQ(output->q_taken.as<float>()[i], q[chosen]);
  }
  EXPECT_EQ(policy->Poll(), nullptr);  // an output comes once
}

TEST(LocalPolicyTest, UsesLatestWeights) {
  ActingConfig wide = SmallConfig();  // a network of general layers, and one that is small
  wide.model.network.layers[0].units = 300;
  for (const ActingConfig& config : {SmallConfig(), wide}) {
    const auto policy = MakePolicy(1, config);
    const auto module = MakeNetwork(config.model, Env());
    Tensor observation(DType::kF32, {1, 2}), q(DType::kF32, {1, kActions});
    observation.as<float>()[0] = 0.5f;
    observation.as<float>()[1] = -2;
    std::vector<float> value(std::size_t(ParameterCount(**module)));
    const ConstTensor in(observation);
    const auto plan = (*module)->MakePlan({{in.spec()}});
    MutableBuffer workspace(plan->workspace_bytes);
    for (const std::uint64_t version : {1, 2, 3}) {
      InitParameters(**module, version, value);
      ASSERT_TRUE(policy->SetWeights(version, value).ok());
      (*module)->Forward(
          {.value = value, .packed = nullptr, .gradient = {}, .workspace = workspace.bytes()},
          {&in, 1}, {&q, 1}, {});
      policy->Submit(observation, std::vector<ExploreKey>(1));
      const PolicyOutput* output = policy->Poll();
      EXPECT_EQ(output->version, version);
      for (std::size_t a = 0; a < kActions; ++a) {
        EXPECT_NEAR(output->q.as<float>()[a], q.as<float>()[a], 1e-5);
      }
    }
  }
}

TEST(LocalPolicyTest, ChoosesByMeanOfDistributions) {
  const int size = 24;
  for (const CriticKind form : {CriticKind::kCategorical, CriticKind::kQuantile}) {
    ActingConfig config = SmallConfig();
    config.model.critic = form;
    config.model.atoms = 5;
    config.model.v_min = -2, config.model.v_max = 3;
    const auto policy = MakePolicy(size, config);
    const auto module = MakeNetwork(config.model, Env());
    std::vector<float> value(std::size_t(ParameterCount(**module)));
    InitParameters(**module, 5, value);
    for (float& x : value) x *= 4;  // far from equal chances
    ASSERT_TRUE(policy->SetWeights(1, value).ok());
    Tensor observation(DType::kF32, {size, 2}), out(DType::kF32, {size, kActions * 5});
    Rng rng({});
    for (float& x : observation.as<float>()) x = float(rng.Normal());
    const ConstTensor in(observation);
    MutableBuffer workspace((*module)->MakePlan({{in.spec()}})->workspace_bytes);
    (*module)->Forward({.value = value, .workspace = workspace.bytes()}, {&in, 1}, {&out, 1}, {});
    policy->Submit(observation, std::vector<ExploreKey>(size));
    const PolicyOutput* output = policy->Poll();
    ASSERT_EQ(output->q.spec(), (TensorSpec{DType::kF32, {size, kActions}}));
    std::set<std::int32_t> chosen;
    for (std::size_t i = 0; i < size; ++i) {
      std::vector<double> means;
      for (std::size_t a = 0; a < kActions; ++a) {
        double mean = 0, sum = 0;
        for (std::size_t k = 0; k < 5; ++k) {
          const double x = out.as<float>()[(i * kActions + a) * 5 + k];
          const bool atoms = form == CriticKind::kCategorical;
          const double chance = atoms ? std::exp(x) : 1;
          mean += chance * (atoms ? -2 + 1.25 * double(k) : x);
          sum += chance;
        }
        means.push_back(mean / sum);
        EXPECT_NEAR(output->q.as<float>()[i * kActions + a], means[a], 1e-5);
      }
      const std::int32_t action = output->action.as<std::int32_t>()[i];
      EXPECT_EQ(action, std::ranges::max_element(means) - means.begin());
      EXPECT_NEAR(output->q_max.as<float>()[i], means[std::size_t(action)], 1e-5);
      chosen.insert(action);
    }
    EXPECT_GT(chosen.size(), 1u);
  }
}

// The values of an evaluation, or of an actor's step.
std::vector<float> NoisyValues(Policy* policy, std::uint64_t env, std::uint64_t episode,
                               std::uint64_t step, double noise) {
  const Tensor observation(DType::kF32, {2, 2});
  std::ranges::copy(std::vector<float>{1, -2, 1, -2}, observation.as<float>().begin());
  // The second row has another key, which selects nothing.
  const ExploreKey first{.env = env, .episode = episode, .step = step, .noise_sigma = noise};
  policy->Submit(observation, std::vector<ExploreKey>{first, {.env = 9, .noise_sigma = noise}});
  const auto q = policy->Poll()->q.as<float>();
  // All rows of a call have the same noise.
  EXPECT_TRUE(std::ranges::equal(q.first(kActions), q.last(kActions)));
  return {q.begin(), q.begin() + kActions};
}

TEST(LocalPolicyTest, NoisyNetworkDrawsNoiseOfKeyForActorsAlone) {
  ActingConfig config = SmallConfig();
  config.model.network.noisy = true;
  ActingConfig plain = SmallConfig();
  const auto noisy = MakePolicy(2, config), means = MakePolicy(2, plain);
  // The network's parameters by their names: the plain network has the means.
  const auto noisy_network = MakeNetwork(config.model, Env());
  const auto plain_network = MakeNetwork(plain.model, Env());
  std::vector<float> value(std::size_t(ParameterCount(**noisy_network)));
  std::vector<float> mean(std::size_t(ParameterCount(**plain_network)));
  InitParameters(**noisy_network, 5, value);
  for (const ParamSpec& to : (*plain_network)->params()) {
    for (const ParamSpec& from : (*noisy_network)->params()) {
      if (from.name == to.name)
        std::copy_n(value.begin() + from.offset, to.shape.elements(), mean.begin() + to.offset);
    }
  }
  ASSERT_TRUE(noisy->SetWeights(1, value).ok());
  ASSERT_TRUE(means->SetWeights(1, mean).ok());
  // 1. Evaluations have no noise.
  const std::vector<float> quiet = NoisyValues(noisy.get(), 3, 4, 5, 0);
  const std::vector<float> want = NoisyValues(means.get(), 3, 4, 5, 0);
  for (std::size_t a = 0; a < kActions; ++a) EXPECT_NEAR(quiet[a], want[a], 1e-6);
  // 2. The steps of an actor have it: by environment, episode and step.
  std::set<std::vector<float>> draws{quiet};
  for (const auto& [env, episode, step] : {std::tuple(3, 4, 5), {2, 4, 5}, {3, 5, 5}, {3, 4, 6}}) {
    draws.insert(NoisyValues(noisy.get(), std::uint64_t(env), std::uint64_t(episode),
                             std::uint64_t(step), 1));
  }
  EXPECT_EQ(draws.size(), 5u);
  // 3. A second process with the same weights draws the same.
  const auto other = MakePolicy(2, config);
  ASSERT_TRUE(other->SetWeights(1, value).ok());
  EXPECT_EQ(NoisyValues(other.get(), 3, 4, 5, 1), NoisyValues(noisy.get(), 3, 4, 5, 1));
}

TEST(LocalPolicyTest, BreaksTiesByLowestAction) {
  const auto policy = MakePolicy(1);
  const auto module = MakeNetwork(SmallConfig().model, Env());
  const std::vector<float> zeros(std::size_t(ParameterCount(**module)));
  ASSERT_TRUE(policy->SetWeights(1, zeros).ok());
  const Tensor observation(DType::kF32, {1, 2});
  EXPECT_EQ(Actions(policy.get(), observation, std::vector<ExploreKey>(1))[0], 0);
}

TEST(LocalPolicyTest, RandomnessDependsOnlyOnKey) {
  const int size = 48;
  const auto together = MakePolicy(size), alone = MakePolicy(1);
  std::vector<ExploreKey> keys;
  for (int i = 0; i < size; ++i) {
    keys.push_back({.env = std::uint64_t(i % 4),
                    .episode = std::uint64_t(i % 3) << 32,
                    .step = std::uint64_t(i),
                    .epsilon = 0.7});
  }
  const std::vector<std::int32_t> batch =
      Actions(together.get(), Tensor(DType::kF32, {size, 2}), keys);
  // One at a time and backwards.
  for (int i = size - 1; i >= 0; --i) {
    const std::vector<ExploreKey> key{keys[std::size_t(i)]};
    EXPECT_EQ(Actions(alone.get(), Tensor(DType::kF32, {1, 2}), key)[0], batch[std::size_t(i)]);
  }
}

TEST(LocalPolicyTest, ExploresUniformlyWithProbabilityEpsilon) {
  const int size = 1000;
  const auto policy = MakePolicy(size);
  const Tensor observation(DType::kF32, {size, 2});
  const std::int32_t greedy =
      Actions(policy.get(), observation, std::vector<ExploreKey>(std::size_t(size)))[0];
  const double epsilon = 0.6;
  std::vector<double> count(kActions);
  const int rounds = 20;
  for (int r = 0; r < rounds; ++r) {
    std::vector<ExploreKey> keys;
    for (int i = 0; i < size; ++i) {
      keys.push_back(
          {.env = std::uint64_t(i), .episode = 1, .step = std::uint64_t(r), .epsilon = epsilon});
    }
    for (const std::int32_t a : Actions(policy.get(), observation, keys)) ++count[std::size_t(a)];
  }
  // The stream is fixed by its key: this passes always or never. Five standard deviations.
  const double n = double(size) * rounds;
  for (int a = 0; a < kActions; ++a) {
    const double p = epsilon / kActions + (a == greedy ? 1 - epsilon : 0);
    EXPECT_NEAR(count[std::size_t(a)], n * p, 5 * std::sqrt(n * p * (1 - p)));
  }
}

TEST(LocalPolicyTest, RandomnessDiffersBySeedEpisodeAndStep) {
  const int size = 64;
  const Tensor observation(DType::kF32, {size, 2});
  const auto draws = [&](std::uint64_t run_seed, std::uint64_t episode, std::uint64_t step) {
    ActingConfig config = SmallConfig();
    config.seed = std::int64_t(run_seed);
    std::vector<ExploreKey> keys;
    for (int i = 0; i < size; ++i) {
      keys.push_back({.env = std::uint64_t(i), .episode = episode, .step = step, .epsilon = 1});
    }
    return Actions(MakePolicy(size, config).get(), observation, keys);
  };
  const auto first = draws(1, 0, 0);
  EXPECT_EQ(draws(1, 0, 0), first);
  EXPECT_NE(draws(2, 0, 0), first);
  EXPECT_NE(draws(1, 1, 0), first);
  EXPECT_NE(draws(1, 0, 1), first);
}

TEST(LocalPolicyTest, RejectsWeightsOfOtherSize) {
  const auto policy = MakePolicy(1);
  const Status status = policy->SetWeights(1, std::vector<float>(3));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("3 weights"), std::string::npos) << status.message();
}

TEST(LocalPolicyTest, DqnRejectsContinuousActions) {
  EnvSpec env = Env();
  env.action.kind = ActionSpec::Kind::kContinuous;
  env.action.low = {-1};
  env.action.high = {1};
  const Status refused = MakeLocalPolicy(SmallConfig(), env, 1).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("set learner.algorithm = \"dpg\""), std::string::npos)
      << refused.message();
}

}  // namespace
}  // namespace troop
