#include "nn/models/actor_critic_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "nn/models/model.h"
#include "tests/nn/policy_cases.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

EnvSpec BoxEnv() { return PolicyCaseNamed("clipped_gaussian").env; }

ModelSetup PpoSetup(std::vector<LayerConfig> value_layers) {
  ModelSetup setup;
  setup.algorithm = AlgorithmKind::kPpo;
  setup.network.layers = {LinearLayer(8)};
  setup.network.critic_layers = std::move(value_layers);
  return setup;
}

std::vector<std::string> NamesOf(const Module& network) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : network.params()) names.push_back(spec.name);
  return names;
}

TEST(ActorCriticNetworkTest, NamesShowWhatIsShared) {
  EXPECT_THAT(NamesOf(**MakeActorCriticNetwork(PpoSetup({}), BoxEnv())),
              ElementsAre("layers.0.weight", "layers.0.bias", "head.weight", "head.bias",
                          "head.value.weight", "head.value.bias", "log_std"));
  EXPECT_THAT(NamesOf(**MakeActorCriticNetwork(PpoSetup({LinearLayer(5)}), BoxEnv())),
              ElementsAre("policy.layers.0.weight", "policy.layers.0.bias", "policy.head.weight",
                          "policy.head.bias", "log_std", "value.layers.0.weight",
                          "value.layers.0.bias", "value.head.weight", "value.head.bias"));
}

// The row of an observation: means, deviations, value. Perturbing one network leaves the columns of
// the other.
TEST(ActorCriticNetworkTest, ColumnsBelongToTheirParameters) {
  ModelSetup setup = PpoSetup({LinearLayer(5)});
  setup.network.initial_log_std = -0.75;
  const PolicyBench bench(setup, BoxEnv());
  const Module& network = bench.network();
  std::vector<float> value(bench.value().begin(), bench.value().end());
  const Tensor observations = bench.Observations(3, 1);
  const auto outputs = [&] {
    const TensorSpec in = observations.spec();
    const Plan plan = *network.MakePlan({&in, 1});
    EXPECT_EQ(plan.out[0].shape, (Shape{3, ActorCriticColumns(BoxEnv().action)}));
    MutableBuffer workspace = MutableBuffer::Zeros(plan.workspace_bytes);
    const Tensor out(DType::kF32, plan.out[0].shape);
    const ConstTensor x(observations);
    network.Forward({.value = value, .workspace = workspace.bytes()}, {&x, 1}, {&out, 1}, {});
    return std::vector<float>(out.as<float>().begin(), out.as<float>().end());
  };
  const std::vector<float> before = outputs();
  for (const ParamSpec& spec : network.params()) {
    std::vector<float> kept = value;
    for (std::int64_t k = 0; k < spec.shape.elements(); ++k)
      value[std::size_t(spec.offset + k)] += 1;
    const std::vector<float> after = outputs();
    value = kept;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const std::size_t column = i % 5;
      const bool mine = spec.name == "log_std"            ? column == 2 || column == 3
                        : spec.name.starts_with("policy") ? column < 2
                                                          : column == 4;
      if (!mine) {
        EXPECT_EQ(before[i], after[i]) << spec.name << ", " << column;
      } else if (spec.name == "log_std" || spec.name.ends_with("head.bias")) {
        EXPECT_NEAR(after[i], before[i] + 1, 1e-5) << spec.name;
      }
    }
  }
  std::vector<float> initial(value.size());
  InitParameters(network, 1, initial);
  const ParamSpec& log_std = network.params()[4];
  EXPECT_EQ(initial[std::size_t(log_std.offset)], -0.75F);
  EXPECT_EQ(initial[std::size_t(log_std.offset + 1)], -0.75F);
}

// Both networks normalize the observations.
TEST(ActorCriticNetworkTest, StatisticsOfBothNetworksAreUpdated) {
  const PolicyCase c = PolicyCaseNamed("clipped_gaussian");
  const PolicyBench bench(c.setup, c.env);
  int counts = 0;
  for (const ParamSpec& spec : bench.network().params()) {
    if (!spec.name.ends_with("input.count")) continue;
    ++counts;
    EXPECT_NEAR(bench.value()[std::size_t(spec.offset)], 50, 0.2) << spec.name;
  }
  EXPECT_EQ(counts, 2);
}

TEST(ActorCriticNetworkTest, ErrorsNameTheKey) {
  ModelSetup setup = PpoSetup({});
  setup.network.initial_log_std = -1;
  EXPECT_THAT(MakeNetwork(setup, DiscreteEnv({DType::kF32, {4}}, 2)).status().message(),
              HasSubstr("network.initial_log_std: test has discrete actions"));
  EXPECT_TRUE(MakeNetwork(setup, BoxEnv()).ok());
  EXPECT_THAT(MakeNetwork(PpoSetup({LinearLayer(0)}), BoxEnv()).status().message(),
              HasSubstr("network.critic_layers[0].units"));
}

// Differences of the magnitude of bf16, where the machine has it; else the same numbers.
TEST(ActorCriticNetworkTest, Bf16StaysWithinRoundingError) {
  for (const char* name : {"clipped_gaussian", "clipped_gaussian_shared", "separate_value"}) {
    const PolicyCase c = PolicyCaseNamed(name);
    const PolicyBench bench(c.setup, c.env);
    const Tensor observations = bench.Observations(7, 2);
    const TensorSpec in = observations.spec();
    const Plan plan = *bench.network().MakePlan({&in, 1});
    std::vector<std::vector<float>> results;
    for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
      const auto packed = bench.network().MakePacked(precision);
      bench.network().Pack(bench.value(), packed.get());
      MutableBuffer workspace = MutableBuffer::Zeros(plan.workspace_bytes);
      const Tensor out(DType::kF32, plan.out[0].shape);
      const ConstTensor x(observations);
      bench.network().Forward(
          {.value = bench.value(), .packed = packed.get(), .workspace = workspace.bytes()}, {&x, 1},
          {&out, 1}, {});
      results.emplace_back(out.as<float>().begin(), out.as<float>().end());
    }
    for (std::size_t i = 0; i < results[0].size(); ++i)
      EXPECT_NEAR(results[0][i], results[1][i], 0.05) << name;
  }
}

}  // namespace
}  // namespace troop
