#include "nn/models/policy_critic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "kernels/onednn/layer_kernel.h"
#include "nn/layers/layers.h"
#include "nn/models/model.h"
#include "tests/testing/gradient_check.h"

namespace troop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kBatch = 3;

LayerConfig Linear(std::int64_t units, Activation activation = Activation::kTanh) {
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = units;
  layer.activation = activation;
  return layer;
}

LayerConfig Conv(std::int64_t filters, std::int64_t kernel) {
  LayerConfig layer;
  layer.type = LayerType::kConv2d;
  layer.filters = filters;
  layer.kernel = kernel;
  layer.activation = Activation::kTanh;
  return layer;
}

EnvSpec Env(const TensorSpec& observation = {DType::kF32, {3}}) {
  EnvSpec env;
  env.id = "Test-v0";
  env.observation = observation;
  env.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-2, 0}, .high = {2, 0.5f}};
  return env;
}

ModelSetup SmallSetup() {
  ModelSetup setup;
  setup.algorithm = AlgorithmKind::kDpg;
  setup.action_gradient_clip = 0;
  setup.network.layers = {Linear(7)};
  setup.network.critic_layers = {Linear(9), Linear(5)};
  return setup;
}

// One network with random weights, and a batch.
class Bench {
 public:
  Bench(const ModelSetup& setup, const EnvSpec& env, Precision precision = Precision::kF32) {
    network = *MakePolicyCritic(setup, env);
    observation = Tensor(env.observation.dtype, env.observation.shape.Prepend(kBatch));
    const TensorSpec in = observation.spec();
    const Plan plan = *network->MakePlan({&in, 1});
    value.resize(std::size_t(ParameterCount(*network)));
    gradient.assign(value.size(), 0);
    InitParameters(*network, 5, value);
    packed = network->MakePacked(precision);
    cache = MutableBuffer(plan.cache_bytes);
    workspace = MutableBuffer(plan.workspace_bytes);
    action = Tensor(DType::kF32, plan.out[0].shape);
    q = Tensor(DType::kF32, plan.out[1].shape);
    dq = Tensor(DType::kF32, plan.out[1].shape);
    Rng rng({4, Purpose::kTest});
    for (float& x : observation.as<float>()) x = float(rng.Normal());
    for (float& x : dq.as<float>()) x = float(rng.Normal());
    for (float& x : action.as<float>()) x = float(rng.Normal());
  }

  StepContext Context() {
    network->Pack(value, packed.get());
    return {.value = value, .packed = packed.get(), .workspace = workspace.bytes()};
  }
  double Sum() const {
    double sum = 0;
    for (std::size_t i = 0; i < std::size_t(q.elements()); ++i) {
      sum += double(q.as<float>()[i]) * double(dq.as<float>()[i]);
    }
    return sum;
  }
  // Σ dq · q(s, μ(s)).
  double PolicyLoss(bool keep = false) {
    const ConstTensor in(observation);
    const std::vector<Tensor> out{action, q};
    network->Forward(Context(), {&in, 1}, out, keep ? cache.bytes() : Cache{});
    return Sum();
  }
  // Σ dq · q(s, action).
  double CriticLoss(bool keep = false) {
    const std::vector<ConstTensor> in{observation, action};
    network->critic().Forward(network->CriticContext(Context()), in, {&q, 1},
                              keep ? cache.bytes() : Cache{});
    return Sum();
  }
  StepContext Backwards(bool wanted = true) {
    StepContext context = Context();
    if (wanted) context.gradient = gradient;
    return context;
  }

  std::unique_ptr<PolicyCritic> network;
  std::vector<float> value, gradient;
  std::unique_ptr<Packed> packed;
  MutableBuffer cache, workspace;
  Tensor observation, action, q, dq;
};

// Every element's derivative by a central difference. All layers are smooth.
void ExpectDerivatives(std::span<float> at, std::span<const float> gradient,
                       const std::function<double()>& loss, const char* what) {
  for (std::size_t i = 0; i < at.size(); ++i) {
    const float origin = at[i];
    at[i] = origin + 0.015625f;
    const double up = loss();
    at[i] = origin - 0.015625f;
    const double down = loss();
    at[i] = origin;
    ASSERT_NEAR(gradient[i], (up - down) / 0.03125, 1e-3) << what << " " << i;
  }
}

std::vector<std::pair<ModelSetup, EnvSpec>> Networks() {
  ModelSetup categorical = SmallSetup();
  categorical.critic = CriticKind::kCategorical;
  categorical.atoms = 4;
  ModelSetup pictures = SmallSetup();
  pictures.network.layers = {Conv(3, 3), Linear(6)};
  pictures.network.critic_layers = {Conv(2, 2), Conv(4, 2), Linear(6)};
  pictures.frame_stack = 1;
  ModelSetup same = SmallSetup();  // the critic's are the policy's
  same.network.critic_layers = {};
  same.network.normalize_observations = true;
  return {{SmallSetup(), Env()},
          {categorical, Env()},
          {pictures, Env({DType::kF32, {6, 5, 2}})},
          {same, Env({DType::kF32, {2, 2}})}};
}

TEST(ActionBoundsTest, GradientsMatchFiniteDifferencesAndActionsStayInBounds) {
  const std::vector<float> low{-2, 0, -1e30f}, high{2, 0.5f, 1e30f};
  const auto bounds = MakeActionBounds(std::span(low).first(2), std::span(high).first(2));
  test::CheckGradients(*bounds, {DType::kF32, {5, 2}});
  const auto wide = MakeActionBounds(low, high);
  Tensor in(DType::kF32, {2, 3}), out(DType::kF32, {2, 3});
  std::ranges::fill(in.as<float>().first(3), 100.0f);
  std::ranges::fill(in.as<float>().last(3), -100.0f);
  const ConstTensor x(in);
  wide->Forward({}, {&x, 1}, {&out, 1}, {});
  EXPECT_THAT(out.as<float>(), ElementsAre(2, 0.5f, 1e30f, -2, 0, -1e30f));
}

TEST(PolicyCriticTest, CriticGradientMatchesFiniteDifferences) {
  for (const auto& [setup, env] : Networks()) {
    Bench b(setup, env);
    b.CriticLoss(true);
    const std::vector<ConstTensor> in{b.observation, b.action};
    Tensor daction(DType::kF32, b.action.shape());
    const std::vector<Tensor> din{Tensor(), daction};
    const ConstTensor dq(b.dq);
    b.network->critic().Backward(b.network->CriticContext(b.Backwards()), in, {&dq, 1},
                                 b.cache.bytes(), din);
    const auto loss = [&b = b] { return b.CriticLoss(); };
    ExpectDerivatives(b.action.as<float>(), daction.as<float>(), loss, "action");
    for (const ParamSpec& spec : b.network->params()) {
      if (!spec.trained) continue;
      const auto first = std::size_t(spec.offset), count = std::size_t(spec.shape.elements());
      ExpectDerivatives(std::span(b.value).subspan(first, count),
                        std::span(b.gradient).subspan(first, count), loss, spec.name.c_str());
    }
  }
}

TEST(PolicyCriticTest, PolicyGradientMatchesFiniteDifferencesWithoutCritic) {
  for (const auto& [setup, env] : Networks()) {
    Bench b(setup, env);
    b.PolicyLoss(true);
    const ConstTensor in(b.observation);
    const std::vector<ConstTensor> dout{ConstTensor(), b.dq};
    std::ranges::fill(b.gradient, 0.0f);
    b.network->Backward(b.Backwards(), {&in, 1}, dout, b.cache.bytes(), {});
    const auto loss = [&b = b] { return b.PolicyLoss(); };
    for (const ParamSpec& spec : b.network->params()) {
      const auto first = std::size_t(spec.offset), count = std::size_t(spec.shape.elements());
      const auto gradient = std::span(b.gradient).subspan(first, count);
      if (!spec.trained) continue;
      if (spec.offset >= b.network->critic_offset()) {
        EXPECT_THAT(gradient, ::testing::Each(0.0f)) << spec.name;
      } else {
        ExpectDerivatives(std::span(b.value).subspan(first, count), gradient, loss,
                          spec.name.c_str());
      }
    }
  }
}

// The chain by hand: dQ/da of each item, clipped, through the policy.
TEST(PolicyCriticTest, ClipsActionGradientElementwise) {
  ModelSetup setup = SmallSetup();
  setup.action_gradient_clip = 0.01;
  Bench b(setup, Env());
  std::ranges::fill(b.dq.as<float>(), -1.0f / kBatch);
  b.PolicyLoss(true);
  const ConstTensor in(b.observation);
  const std::vector<ConstTensor> dout{ConstTensor(), b.dq};
  b.network->Backward(b.Backwards(), {&in, 1}, dout, b.cache.bytes(), {});
  const std::vector<float> clipped = b.gradient;

  b.CriticLoss(true);  // at the policy's action
  const std::vector<ConstTensor> judged{b.observation, b.action};
  Tensor daction(DType::kF32, b.action.shape());
  const std::vector<Tensor> din{Tensor(), daction};
  const ConstTensor dq(b.dq);
  b.network->critic().Backward(b.network->CriticContext(b.Backwards(false)), judged, {&dq, 1},
                               b.cache.bytes(), din);
  int cut = 0;
  for (float& d : daction.as<float>()) {
    cut += std::abs(d) > 0.01 / kBatch;
    d = std::clamp(d, -0.01f / kBatch, 0.01f / kBatch);
  }
  EXPECT_GT(cut, 0);
  // The policy's mean action in the direction of the clipped gradient.
  const auto loss = [&] {
    b.PolicyLoss();
    double sum = 0;
    for (std::size_t i = 0; i < std::size_t(b.action.elements()); ++i) {
      sum += double(b.action.as<float>()[i]) * double(daction.as<float>()[i]);
    }
    return sum;
  };
  const auto policy = std::size_t(b.network->critic_offset());
  for (std::size_t i = 0; i < policy; ++i) {
    const float origin = b.value[i];
    b.value[i] = origin + 0.015625f;
    const double up = loss();
    b.value[i] = origin - 0.015625f;
    const double down = loss();
    b.value[i] = origin;
    ASSERT_NEAR(clipped[i], (up - down) / 0.03125, 2e-5) << i;
  }
}

TEST(PolicyCriticTest, OrdersPolicyParametersBeforeCritic) {
  ModelSetup setup = SmallSetup();
  setup.critic = CriticKind::kCategorical;
  setup.atoms = 11;
  const auto network = *MakePolicyCritic(setup, Env());
  std::vector<std::string> names;
  for (const ParamSpec& spec : network->params()) {
    names.push_back(spec.name + spec.shape.ToString());
    const bool critic = spec.name.starts_with("critic.");
    EXPECT_EQ(critic, spec.offset >= network->critic_offset()) << spec.name;
  }
  EXPECT_THAT(names, ElementsAre("policy.layers.0.weight[7, 3]", "policy.layers.0.bias[7]",
                                 "policy.head.weight[2, 7]", "policy.head.bias[2]",
                                 "critic.layers.0.weight[9, 5]", "critic.layers.0.bias[9]",
                                 "critic.layers.1.weight[5, 9]", "critic.layers.1.bias[5]",
                                 "critic.head.weight[11, 5]", "critic.head.bias[11]"));
}

// Twin critics: the same layers with other weights; each has its own gradient, and the policy's
// value is that of the first.
TEST(PolicyCriticTest, TwinCriticsAreSeparate) {
  ModelSetup setup = SmallSetup();
  Bench one(setup, Env());
  setup.algorithm = AlgorithmKind::kTd3;
  Bench b(setup, Env());
  ASSERT_EQ(b.network->critics(), 2u);
  EXPECT_EQ(b.value.size() - one.value.size(),
            one.value.size() - std::size_t(one.network->critic_offset()));
  EXPECT_EQ(b.network->params().back().name, "critic2.head.bias");
  EXPECT_EQ(one.PolicyLoss(), b.PolicyLoss());  // the first critic begins with the same weights

  const std::vector<ConstTensor> in{b.observation, b.action};
  const auto loss = [&](std::size_t critic) {
    b.network->critic(critic).Forward(b.network->CriticContext(b.Context(), critic), in, {&b.q, 1},
                                      b.cache.bytes());
    return b.Sum();
  };
  EXPECT_NE(loss(0), loss(1));
  loss(1);
  const ConstTensor dq(b.dq);
  std::ranges::fill(b.gradient, 0.0f);
  b.network->critic(1).Backward(b.network->CriticContext(b.Backwards(), 1), in, {&dq, 1},
                                b.cache.bytes(), {});
  for (const ParamSpec& spec : b.network->params()) {
    const auto first = std::size_t(spec.offset), count = std::size_t(spec.shape.elements());
    ExpectDerivatives(
        std::span(b.value).subspan(first, count), std::span(b.gradient).subspan(first, count),
        [&] { return loss(1); }, spec.name.c_str());
  }
}

// The stochastic policy: its head, the temperature, and critics of normalized actions.
TEST(PolicyCriticTest, StochasticPolicyHasTemperatureBeforeCritics) {
  ModelSetup setup = SmallSetup();
  setup.algorithm = AlgorithmKind::kSac;
  setup.initial_temperature = 0.5;
  setup.network.critic_layers = {Linear(9)};
  Bench b(setup, Env());
  ASSERT_EQ(b.network->critics(), 2u);
  std::vector<std::string> names;
  for (const ParamSpec& spec : b.network->params()) {
    if (spec.name.starts_with("critic2.")) continue;
    names.push_back(spec.name + spec.shape.ToString());
    EXPECT_EQ(spec.name.starts_with("critic."), spec.offset >= b.network->critic_offset());
  }
  EXPECT_THAT(names, ElementsAre("policy.layers.0.weight[7, 3]", "policy.layers.0.bias[7]",
                                 "policy.head.weight[2, 7]", "policy.head.bias[2]",
                                 "policy.head.log_std.weight[2, 7]", "policy.head.log_std.bias[2]",
                                 "log_temperature[1]", "critic.layers.0.weight[9, 5]",
                                 "critic.layers.0.bias[9]", "critic.head.weight[1, 9]",
                                 "critic.head.bias[1]"));
  EXPECT_FLOAT_EQ(b.value[std::size_t(b.network->temperature_offset())], float(std::log(0.5)));

  // A critic without the normalization gives the same values for normalized actions.
  setup.algorithm = AlgorithmKind::kDpg;
  Bench plain(setup, Env());
  const auto count = plain.value.size() - std::size_t(plain.network->critic_offset());
  std::copy_n(b.value.begin() + b.network->critic_offset(), count,
              plain.value.begin() + plain.network->critic_offset());
  b.CriticLoss(true);
  for (std::size_t i = 0; i < std::size_t(b.action.elements()); ++i) {
    const float a = b.action.as<float>()[i];
    plain.action.as<float>()[i] = i % 2 == 0 ? a / 2 : (a - 0.25f) / 0.25f;
  }
  plain.CriticLoss();
  for (std::size_t i = 0; i < std::size_t(b.q.elements()); ++i)
    EXPECT_NEAR(b.q.as<float>()[i], plain.q.as<float>()[i], 1e-5);
  // The gradient of the action is that of the value.
  const std::vector<ConstTensor> in{b.observation, b.action};
  const ConstTensor dq(b.dq);
  Tensor daction(DType::kF32, b.action.shape());
  const std::vector<Tensor> din{Tensor(), daction};
  b.CriticLoss(true);
  b.network->critic().Backward(b.network->CriticContext(b.Backwards()), in, {&dq, 1},
                               b.cache.bytes(), din);
  // The second dimension has a range of 0.5, so the difference is taken over less.
  for (std::size_t i = 0; i < std::size_t(b.action.elements()); ++i) {
    float& a = b.action.as<float>()[i];
    const float origin = a, step = i % 2 == 0 ? 0.0078125f : 0.001953125f;
    a = origin + step;
    const double up = b.CriticLoss();
    a = origin - step;
    const double down = b.CriticLoss();
    a = origin;
    EXPECT_NEAR(daction.as<float>()[i], (up - down) / (2 * double(step)), 2e-3) << i;
  }
}

TEST(PolicyCriticTest, Bf16StaysWithinRoundingError) {
  if (!BF16Available()) GTEST_SKIP() << "no AVX-512 here";
  Bench exact(SmallSetup(), Env()), rough(SmallSetup(), Env(), Precision::kBF16);
  exact.PolicyLoss();
  rough.PolicyLoss();
  for (std::size_t i = 0; i < std::size_t(exact.action.elements()); ++i) {
    EXPECT_NEAR(exact.action.as<float>()[i], rough.action.as<float>()[i], 0.05);
  }
  for (std::size_t i = 0; i < std::size_t(exact.q.elements()); ++i) {
    EXPECT_NEAR(exact.q.as<float>()[i], rough.q.as<float>()[i], 0.05);
  }
}

TEST(PolicyCriticTest, RejectsActionKindUnsupportedByAlgorithm) {
  ModelSetup setup = SmallSetup();
  setup.algorithm = AlgorithmKind::kDqn;
  const Status continuous = MakeNetwork(setup, Env()).status();
  EXPECT_EQ(continuous.code(), Code::kInvalidArgument);
  EXPECT_THAT(continuous.message(), HasSubstr("set learner.algorithm = \"dpg\""));
  EnvSpec discrete = Env();
  discrete.action = {.count = 3};
  setup.algorithm = AlgorithmKind::kDpg;
  const Status other = MakeNetwork(setup, discrete).status();
  EXPECT_EQ(other.code(), Code::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("Test-v0 has discrete actions"));
  EXPECT_THAT(other.message(), HasSubstr("set learner.algorithm = \"dqn\""));
}

}  // namespace
}  // namespace troop
