#include "learners/unrolls/actor_critic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/loss/policy_gradient_loss.h"
#include "nn/models/actor_critic_network.h"
#include "nn/models/model.h"
#include "tests/learners/dqn_testing.h"
#include "tests/learners/unroll_batch.h"

namespace troop {
namespace {

using testing::HasSubstr;

TrainingConfig ActorCriticConfig(AlgorithmKind algorithm) {
  TrainingConfig config = SmallConfig();
  config.learner.algorithm = algorithm;
  config.unroll_length = kUnrollSteps;
  return config;
}

// Recurrent states, and log-probabilities of some policy for every step.
SampleBatch StochasticBatch(std::int64_t unrolls, std::uint64_t seed, std::int64_t columns = 0) {
  SampleBatch b = UnrollBatch(unrolls, seed);
  Rng rng({seed + 1000, Purpose::kTest});
  b.state = Tensor(DType::kF32, {unrolls, columns + kUnrollSteps});
  for (std::int64_t i = 0; i < unrolls; ++i) {
    const auto row = b.state.Rows(i, 1).as<float>();
    for (float& x : row.first(std::size_t(columns))) x = float(rng.Normal());
    for (float& x : row.subspan(std::size_t(columns))) x = float(std::log(rng.Uniform(0.1, 0.9)));
  }
  return b;
}

// Appends values of the actors' network to the states.
void AddValues(SampleBatch* b, std::uint64_t seed) {
  Rng rng({seed + 4000, Purpose::kTest});
  const Tensor old = b->state;
  const std::int64_t width = old.dim(1);
  b->state = Tensor(DType::kF32, {b->size(), width + kUnrollSteps});
  for (std::int64_t i = 0; i < b->size(); ++i) {
    const auto row = b->state.Rows(i, 1).as<float>();
    std::ranges::copy(old.Rows(i, 1).as<float>(), row.begin());
    for (float& x : row.subspan(std::size_t(width))) x = float(rng.Normal() / 10);
  }
}

// An environment with two action dimensions.
EnvSpec BoxEnv() {
  EnvSpec env = Env();
  env.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-2, 0}, .high = {2, 0.5F}};
  return env;
}

// Batch with actions in that environment, every third component at a bound.
SampleBatch BoxBatch(std::int64_t unrolls, std::uint64_t seed, std::int64_t columns = 0) {
  SampleBatch b = StochasticBatch(unrolls, seed, columns);
  Rng rng({seed + 2000, Purpose::kTest});
  const ActionSpec action = BoxEnv().action;
  b.action = Tensor(DType::kF32, {unrolls, kUnrollSteps, 2});
  const std::span<float> all = b.action.as<float>();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float low = action.low[i % 2], high = action.high[i % 2];
    all[i] = i % 3 == 0 ? (i % 2 == 0 ? low : high) : float(rng.Uniform(low, high));
  }
  return b;
}

// An environment whose actions have three discrete components, and a batch of such actions.
EnvSpec DialsEnv() {
  EnvSpec env = Env();
  env.action = {.kind = ActionSpec::Kind::kContinuous,
                .low = {0, -1, 3},
                .high = {3, 1, 3},
                .integers = true};
  return env;
}
SampleBatch DialsBatch(std::int64_t unrolls, std::uint64_t seed, std::int64_t columns = 0) {
  SampleBatch b = StochasticBatch(unrolls, seed, columns);
  Rng rng({seed + 3000, Purpose::kTest});
  const ActionSpec action = DialsEnv().action;
  b.action = Tensor(DType::kF32, {unrolls, kUnrollSteps, 3});
  const std::span<float> all = b.action.as<float>();
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = action.low[i % 3] + float(rng.Below(std::uint32_t(action.choices(i % 3))));
  return b;
}

LossReport UpdateOnce(Algorithm* algorithm, const SampleBatch& batch) {
  std::vector<float> priority(std::size_t(batch.size()));
  const auto report = algorithm->Update(batch, 0, priority);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? *report : LossReport{};
}

// The frames of all unrolls of a batch, each with its length + 1 frames: [frames, kInputs].
Tensor FramesOf(const SampleBatch& b) {
  std::vector<float> rows;
  for (std::size_t i = 0; i < b.length.size(); ++i) {
    for (std::size_t t = 0; t <= std::size_t(b.length[i]); ++t) {
      const auto row =
          b.observation.as<float>().subspan((i * (kUnrollSteps + 1) + t) * kInputs, kInputs);
      rows.insert(rows.end(), row.begin(), row.end());
    }
  }
  Tensor frames(DType::kF32, {std::int64_t(rows.size()) / kInputs, kInputs});
  std::ranges::copy(rows, frames.as<float>().begin());
  return frames;
}

// Loss and gradient of a batch, by a network outside of the algorithm.
struct LossOutside {
  LossOutside(const TrainingConfig& config, const EnvSpec& env, const SampleBatch& b)
      : network(std::move(MakeNetwork(ModelSetupOf(config), env)).value()),
        frames(FramesOf(b)),
        outputs(ActorCriticColumns(env.action)),
        columns(StateColumns(config.network.layers)) {
    for (std::int64_t i = 0; i < b.size(); ++i) {
      const auto row = b.state.Rows(i, 1).as<float>();
      const auto split = row.begin() + columns, end = split + kUnrollSteps;
      state.insert(state.end(), row.begin(), split);
      log_mu.insert(log_mu.end(), split, end);
      mu_value.insert(mu_value.end(), end, row.end());
      length.push_back(b.length[std::size_t(i)] + 1);
    }
  }

  std::vector<float> Outputs(std::span<const float> value) const {
    const ConstTensor in(frames);
    const TensorSpec spec = in.spec();
    const Plan plan = *network->MakePlan({&spec, 1});
    MutableBuffer workspace = MutableBuffer::Zeros(plan.workspace_bytes);
    Tensor out(DType::kF32, {frames.dim(0), outputs});
    const Sequences sequences{length, state, {}, columns};
    network->Forward({.value = value, .workspace = workspace.bytes(), .sequences = &sequences},
                     {&in, 1}, {&out, 1}, {});
    return {out.as<float>().begin(), out.as<float>().end()};
  }

  const std::unique_ptr<Module> network;
  const Tensor frames;
  const std::int64_t outputs, columns;
  std::vector<float> state, log_mu, mu_value;
  std::vector<std::int32_t> length;
};

void ExpectGradientOfDifferences(TrainingConfig config, const EnvSpec& env = Env()) {
  config.learner.lambda = 0.9;
  config.learner.rho_bar = 0.9;
  config.learner.c_bar = 0.8;
  const auto made = std::move(MakeAlgorithm(config, env)).value();
  const std::int64_t columns = StateColumns(config.network.layers);
  const bool discrete = env.action.discrete();
  const bool integers = env.action.integers;
  SampleBatch b = discrete   ? StochasticBatch(5, 3, columns)
                  : integers ? DialsBatch(5, 3, columns)
                             : BoxBatch(5, 3, columns);
  if (config.learner.value_clip > 0) AddValues(&b, 3);
  const LossOutside outside(config, env, b);
  std::unique_ptr<PolicyDistribution> policy;
  if (discrete) {
    policy = std::make_unique<CategoricalDistribution>(kActions, b.action.data<std::int32_t>());
  } else if (integers) {
    policy = std::make_unique<MultiCategoricalDistribution>(env.action.low, env.action.high,
                                                            b.action.data<float>());
  } else {
    policy = std::make_unique<GaussianDistribution>(env.action.low, env.action.high,
                                                    b.action.data<float>());
  }
  std::vector<float> priority(5);
  ASSERT_TRUE(made->ComputeGradient(b, priority).ok());
  // The directional derivative of the loss with constant targets: Σ dout · dout/dθ, by
  // differences of the outputs.
  std::vector<float> value(made->value().begin(), made->value().end());
  const std::vector<float> out = outside.Outputs(value);
  std::vector<float> dout(out.size()), errors(5);
  const LearnerConfig& l = config.learner;
  const bool ppo = l.algorithm == AlgorithmKind::kPpo;
  PolicyGradientLoss({.batch = 5,
                      .steps = kUnrollSteps,
                      .policy = policy.get(),
                      .out = out.data(),
                      .log_mu = outside.log_mu.data(),
                      .mu_value = outside.mu_value.data(),
                      .reward = b.reward.data<float>(),
                      .discount = b.discount.data<float>(),
                      .length = b.length.data(),
                      .weight = b.weight.data(),
                      .gamma = l.gamma,
                      .lambda = l.lambda,
                      .rho_bar = l.rho_bar,
                      .c_bar = l.c_bar,
                      .value_cost = l.value_cost,
                      .entropy_cost = l.entropy_cost,
                      .ratio_clip = ppo ? l.ratio_clip : 0,
                      .normalize_advantages = ppo,
                      .value_clip = l.value_clip,
                      .target_kl = l.target_kl},
                     {dout.data(), errors.data()});
  for (const ParamSpec& spec : outside.network->params()) {
    for (std::int64_t k = 0; k < spec.shape.elements(); k += 3) {
      const auto at = std::size_t(spec.offset + k);
      const float kept = value[at];
      value[at] = kept + 1e-2F;
      const std::vector<float> above = outside.Outputs(value);
      value[at] = kept - 1e-2F;
      const std::vector<float> below = outside.Outputs(value);
      value[at] = kept;
      double slope = 0;
      for (std::size_t i = 0; i < dout.size(); ++i)
        slope += double(dout[i]) * (double(above[i]) - double(below[i])) / 2e-2;
      EXPECT_NEAR(made->gradient()[at], slope, 2e-3 * (1 + std::abs(slope)))
          << spec.name << "[" << k << "]";
    }
  }
  EXPECT_EQ(priority, errors);
}

// Outputs and gradient of the network are plain sums: the gradient of the head's weights is Σ over
// the frames of dout · features, of which the loss has its own test.
TEST(ActorCriticTest, GradientOfParametersMatchesDifferences) {
  for (const AlgorithmKind algorithm : {AlgorithmKind::kVtrace, AlgorithmKind::kPpo})
    ExpectGradientOfDifferences(ActorCriticConfig(algorithm));
}

// The values of the actors' network follow the log-probabilities, after a recurrent state or none.
TEST(ActorCriticTest, ValueClipAndTargetKlReachTheLoss) {
  TrainingConfig config = ActorCriticConfig(AlgorithmKind::kPpo);
  config.learner.value_clip = 0.05;
  ExpectGradientOfDifferences(config);
  config.network.layers = {{.type = LayerType::kLinear, .units = 6},
                           {.type = LayerType::kGru, .units = 4}};
  ExpectGradientOfDifferences(config);
  config.learner.target_kl = 1e-4;
  ExpectGradientOfDifferences(config);
  const auto made = std::move(MakeAlgorithm(config, Env())).value();
  SampleBatch b = StochasticBatch(5, 3, 4);
  std::vector<float> priority(5);
  EXPECT_THAT(made->ComputeGradient(b, priority).status().message(),
              HasSubstr("the state of the unrolls is"))
      << "without values";
  AddValues(&b, 3);
  const auto report = made->ComputeGradient(b, priority);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->stopped, 1);
  EXPECT_EQ(report->policy_loss, 0);
}

// Each unroll is a sequence, which begins with the state of its item.
TEST(ActorCriticTest, GradientOfRecurrentNetworkMatchesDifferences) {
  for (const AlgorithmKind algorithm : {AlgorithmKind::kVtrace, AlgorithmKind::kPpo}) {
    TrainingConfig config = ActorCriticConfig(algorithm);
    config.network.layers = {{.type = LayerType::kLinear, .units = 6},
                             {.type = LayerType::kLstm, .units = 5},
                             {.type = LayerType::kGru, .units = 4}};
    ExpectGradientOfDifferences(config);
  }
}

// Continuous actions, and a separate network of the value.
TEST(ActorCriticTest, GradientOfContinuousAndSeparateNetworksMatchesDifferences) {
  for (const AlgorithmKind algorithm : {AlgorithmKind::kVtrace, AlgorithmKind::kPpo}) {
    TrainingConfig config = ActorCriticConfig(algorithm);
    ExpectGradientOfDifferences(config, BoxEnv());
    config.network.critic_layers = {{.type = LayerType::kLinear, .units = 7}};
    ExpectGradientOfDifferences(config, BoxEnv());
    ExpectGradientOfDifferences(config);
    config.network.layers = {{.type = LayerType::kLinear, .units = 6},
                             {.type = LayerType::kGru, .units = 4}};
    ExpectGradientOfDifferences(config, BoxEnv());
  }
}

// Several discrete components, with and without a separate network of the value.
TEST(ActorCriticTest, GradientOfSeveralComponentsMatchesDifferences) {
  for (const AlgorithmKind algorithm : {AlgorithmKind::kVtrace, AlgorithmKind::kPpo}) {
    TrainingConfig config = ActorCriticConfig(algorithm);
    ExpectGradientOfDifferences(config, DialsEnv());
    config.network.critic_layers = {{.type = LayerType::kLinear, .units = 7}};
    ExpectGradientOfDifferences(config, DialsEnv());
  }
}

// A value out of its range would read the logits of another component.
TEST(ActorCriticTest, RejectsComponentsOutsideTheirRange) {
  const auto made =
      std::move(MakeAlgorithm(ActorCriticConfig(AlgorithmKind::kPpo), DialsEnv())).value();
  std::vector<float> priority(5);
  SampleBatch b = DialsBatch(5, 3);
  b.length[2] = kUnrollSteps;
  const std::size_t last = 3 * 3 * kUnrollSteps - 3;  // the first component of unroll 2's last step
  const float kept = b.action.as<float>()[last];
  for (const float wrong : {4.0F, -1.0F, 1.5F, std::nanf("")}) {
    b.action.as<float>()[last] = wrong;
    EXPECT_THAT(made->ComputeGradient(b, priority).status().message(),
                testing::HasSubstr("unroll 2: action[0] is "));
  }
  b.action.as<float>()[last] = kept;
  EXPECT_TRUE(made->ComputeGradient(b, priority).ok());
}

// Rewards are highest at the upper bound of one dimension and inside the other one. Actions are
// uniform, whose density is 1/2 per dimension.
TEST(ActorCriticTest, LearnsContinuousActionsFromUniformData) {
  TrainingConfig config = ActorCriticConfig(AlgorithmKind::kVtrace);
  config.optimizer.epsilon = 1e-8;
  config.learner.entropy_cost = 0;
  config.network.critic_layers = {{.type = LayerType::kLinear, .units = 8}};
  const EnvSpec env = BoxEnv();
  const auto made = std::move(MakeAlgorithm(config, env)).value();
  const std::int64_t unrolls = 64;
  SampleBatch b = BoxBatch(unrolls, 1);
  Rng rng({9, Purpose::kTest});
  std::ranges::fill(b.observation.as<float>(), 0.0F);
  std::ranges::fill(b.discount.as<float>(), 0.0F);
  std::ranges::fill(b.weight, 1.0F);
  std::ranges::fill(b.length, 1);
  std::ranges::fill(b.state.as<float>(), float(2 * std::log(0.5)));
  for (int update = 0; update < 1500; ++update) {
    for (std::size_t i = 0; i < std::size_t(unrolls); ++i) {
      const float x = float(rng.Uniform(-2, 2)), y = float(rng.Uniform(0, 0.5));
      b.action.as<float>()[i * kUnrollSteps * 2] = x;
      b.action.as<float>()[i * kUnrollSteps * 2 + 1] = y;
      b.reward.as<float>()[i * kUnrollSteps] = x - 16 * std::pow(y - 0.4F, 2.0F);
    }
    UpdateOnce(made.get(), b);
  }
  const std::vector<float> out = LossOutside(config, env, b).Outputs(made->value());
  EXPECT_GT(out[0], 0.7);
  EXPECT_NEAR(out[1], 0.6, 0.2);  // y = 0.4 in units of half its range
}

// Two states with one step each; in each another action is rewarded. Actions are sampled uniformly,
// so only corrected ratios find the best ones. PPO's policy stays near the one that acted: each
// ratio stops where it is clipped, the best action's near 1.2 and the others' near 0.8 of 1/4.
TEST(ActorCriticTest, LearnsBestActionsFromUniformDataUpToTheClip) {
  for (const AlgorithmKind algorithm : {AlgorithmKind::kVtrace, AlgorithmKind::kPpo}) {
    TrainingConfig config = ActorCriticConfig(algorithm);
    config.optimizer.epsilon = 1e-8;
    config.learner.entropy_cost = 0;
    const auto made = Make(config);
    SampleBatch b = StochasticBatch(2 * kActions, 1);
    std::ranges::fill(b.observation.as<float>(), 0.0F);
    std::ranges::fill(b.discount.as<float>(), 0.0F);
    std::ranges::fill(b.weight, 1.0F);
    std::ranges::fill(b.state.as<float>(), float(std::log(1.0 / kActions)));
    for (std::size_t i = 0; i < 2 * kActions; ++i) {
      const std::size_t state = i / kActions, action = i % kActions;
      b.length[i] = 1;
      b.observation.as<float>()[i * (kUnrollSteps + 1) * kInputs + state] = 1;
      b.action.as<std::int32_t>()[i * kUnrollSteps] = std::int32_t(action);
      b.reward.as<float>()[i * kUnrollSteps] = action == state + 1 ? 1 : 0;
    }
    LossReport report;
    for (int i = 0; i < 1500; ++i) report = UpdateOnce(made.get(), b);
    if (algorithm == AlgorithmKind::kPpo) {
      EXPECT_GT(report.entropy, 1);
      EXPECT_GT(report.clipped, 0.5);
      EXPECT_NEAR(report.q_mean, 0.35, 0.1);
    } else {
      EXPECT_LT(report.entropy, 0.2);
      EXPECT_EQ(report.clipped, 0);
      // The value approaches the reward of the policy, which is 1.
      EXPECT_GT(report.q_mean, 0.7);
    }
  }
}

// Names the rows, which belong to a rollout of these weights.
void NameRows(SampleBatch* b, std::uint64_t version) {
  for (std::size_t i = 0; i < b->key.size(); ++i)
    b->key[i] = {.slot = std::uint32_t(i), .generation = 1, .shard = 0};
  std::ranges::fill(b->policy_version, version);
}

// GAE(λ) of one unroll by its definition, Σ (γλ)^k δ_{t+k}, from f64 values of all its frames.
std::vector<double> GaeOf(const SampleBatch& b, std::size_t row, const std::vector<double>& value,
                          double gamma, double lambda) {
  std::vector<double> advantage;
  const auto length = std::size_t(b.length[row]);
  for (std::size_t t = 0; t < length; ++t) {
    double sum = 0, factor = 1;
    for (std::size_t k = t; k < length; ++k) {
      const std::size_t at = row * kUnrollSteps + k;
      const double going = double(b.discount.as<float>()[at]);
      const double ahead = going == 0 ? 0 : gamma * value[k + 1];
      sum += factor * (double(b.reward.as<float>()[at]) + ahead - value[k]);
      factor *= gamma * lambda * going;
    }
    advantage.push_back(sum);
  }
  return advantage;
}

// Expected report of a batch of a rollout, by loops: -mean min(r A, clip(r) A), and the mean of
// |A + V_μ - V| of each unroll. out: of the current weights; last: of the first use.
struct WantedOfRollout {
  WantedOfRollout(const SampleBatch& b, const LossOutside& outside, const LearnerConfig& l,
                  const std::vector<float>& out, const std::vector<float>& last) {
    std::size_t frame = 0, steps = 0;
    for (std::size_t row = 0; row < b.length.size(); ++row) {
      const auto length = std::size_t(b.length[row]);
      std::vector<double> value;
      for (std::size_t t = 0; t < length; ++t)
        value.push_back(double(outside.mu_value[row * kUnrollSteps + t]));
      value.push_back(double(last[(frame + length) * (kActions + 1) + kActions]));
      const std::vector<double> gae = GaeOf(b, row, value, l.gamma, l.lambda);
      double error = 0;
      for (std::size_t t = 0; t < length; ++t) {
        const float* logits = &out[(frame + t) * (kActions + 1)];
        double all = 0;
        for (std::size_t a = 0; a < kActions; ++a) all += std::exp(double(logits[a]));
        const std::size_t at = row * kUnrollSteps + t;
        const double log_pi = double(logits[b.action.as<std::int32_t>()[at]]) - std::log(all);
        const double ratio = std::exp(log_pi - double(outside.log_mu[at]));
        const double bound = std::clamp(ratio, 1 - l.ratio_clip, 1 + l.ratio_clip);
        policy_loss -= double(b.weight[row]) * std::min(ratio * gae[t], bound * gae[t]);
        error += std::abs(gae[t] + value[t] - double(logits[kActions]));
        ++steps;
      }
      priority.push_back(error / double(length));
      frame += length + 1;
    }
    policy_loss /= double(steps);
  }
  double policy_loss = 0;
  std::vector<double> priority;
};

// Later epochs use the advantages and targets of the first one, whatever has been learned since.
TEST(ActorCriticTest, EpochsOfRolloutShareItsAdvantages) {
  TrainingConfig config = ActorCriticConfig(AlgorithmKind::kPpo);
  config.learner.synchronous = true;
  config.learner.normalize_advantages = false;
  config.learner.lambda = 0.8;
  config.optimizer.learning_rate = 0.05;
  const auto made = Make(config);
  SampleBatch b = StochasticBatch(5, 8);
  AddValues(&b, 8);
  const LossOutside outside(config, Env(), b);
  std::vector<float> last;
  for (std::uint64_t update = 0; update < 6; ++update) {
    SCOPED_TRACE(update);
    NameRows(&b, 1 + update / 3);
    const std::vector<float> out = outside.Outputs(made->value());
    if (update % 3 == 0) last = out;  // a new rollout
    const WantedOfRollout want(b, outside, config.learner, out, last);
    std::vector<float> priority(5);
    const auto report = made->Update(b, 0, priority);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_NEAR(report->policy_loss, want.policy_loss, 1e-5);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(priority[i], want.priority[i], 1e-5) << i;
  }
}

TEST(ActorCriticTest, RestoredStateContinuesBitForBit) {
  TrainingConfig config = ActorCriticConfig(AlgorithmKind::kPpo);
  const auto first = Make(config);
  for (std::uint64_t i = 0; i < 3; ++i) UpdateOnce(first.get(), StochasticBatch(6, i));
  const auto read = DecodeSafetensors(EncodeSafetensors(first->State()));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  config.seed = 77;
  const auto second = Make(config);
  UpdateOnce(second.get(), StochasticBatch(4, 50));
  ASSERT_TRUE(second->SetState(*read).ok());
  for (std::uint64_t i = 3; i < 8; ++i) {
    UpdateOnce(first.get(), StochasticBatch(6, i));
    UpdateOnce(second.get(), StochasticBatch(6, i));
  }
  for (std::size_t k = 0; k < first->value().size(); ++k)
    ASSERT_EQ(first->value()[k], second->value()[k]);
}

TEST(ActorCriticTest, RejectsBatchWithoutLogProbabilitiesAndNonFiniteOnes) {
  const auto made = Make(ActorCriticConfig(AlgorithmKind::kVtrace));
  const std::vector<float> before(made->value().begin(), made->value().end());
  std::vector<float> priority(4);
  const auto without = made->Update(UnrollBatch(4, 1), 0, priority);
  EXPECT_THAT(without.status().message(),
              HasSubstr("the state of the unrolls is missing, not f32[4, 5]"));
  const auto other = made->Update(StochasticBatch(4, 1, 6), 0, priority);
  EXPECT_THAT(other.status().message(), HasSubstr("is f32[4, 11], not f32[4, 5]"));
  SampleBatch b = StochasticBatch(4, 1);
  b.state.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(made->Update(b, 0, priority).status().code(), Code::kDataLoss);
  EXPECT_EQ(before, std::vector<float>(made->value().begin(), made->value().end()));
}

}  // namespace
}  // namespace troop
