#include "nn/export/policy_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/storage/json.h"
#include "tests/nn/policy_cases.h"

namespace troop {
namespace {

// A new algorithm must be described, or be listed here with its reason.
TEST(PolicyDescriptionTest, EveryAgentCanBeExported) {
  constexpr AlgorithmKind kKinds[] = {
      AlgorithmKind::kDqn,      AlgorithmKind::kDpg,      AlgorithmKind::kTd3,
      AlgorithmKind::kSac,      AlgorithmKind::kR2d2,     AlgorithmKind::kPqn,
      AlgorithmKind::kVtrace,   AlgorithmKind::kPpo,      AlgorithmKind::kClassifier,
      AlgorithmKind::kMaskedLm, AlgorithmKind::kExternal, AlgorithmKind::kBehaviorCloning,
      AlgorithmKind::kOwn};
  ASSERT_EQ(std::size(kKinds), EnumNames(AlgorithmKind()).size());
  for (const AlgorithmKind kind : kKinds) {
    ModelSetup setup;
    setup.algorithm = kind;
    EnvSpec env = DiscreteEnv({DType::kF32, {4}}, 2);
    if (HasPolicyNetwork(kind))
      env.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-1}, .high = {1}};
    // Text models have no policy.
    EXPECT_EQ(DescribePolicy(setup, env).ok(), !IsSupervised(kind)) << EnumName(kind);
  }
}

TEST(PolicyDescriptionTest, DescribesLayersInOrder) {
  for (const PolicyCase& c : PolicyCases()) {
    const auto policy = DescribePolicy(c.setup, c.env);
    ASSERT_TRUE(policy.ok()) << c.name;
    EXPECT_EQ(policy->layers.front().in, NetworkInput(c.setup, c.env).shape) << c.name;
    for (std::size_t i = 1; i < policy->layers.size(); ++i)
      EXPECT_EQ(policy->layers[i].in, policy->layers[i - 1].out) << c.name << i;
    const ActionSpec& action = c.env.action;
    const std::int64_t outputs = action.discrete() ? action.count : std::int64_t(action.low.size());
    EXPECT_EQ(policy->layers.back().out, Shape{outputs}) << c.name;
    const auto json = ParseJson(EncodePolicy(*policy));
    ASSERT_TRUE(json.ok()) << json.status().ToString();
    EXPECT_EQ(json->Find("layers")->array.size(), policy->layers.size());
  }
}

TEST(PolicyDescriptionTest, RecurrentPolicyIsRefused) {
  ModelSetup setup;
  setup.algorithm = AlgorithmKind::kPpo;
  setup.network.layers = {LinearLayer(4), {.type = LayerType::kGru, .units = 4}};
  const auto policy = DescribePolicy(setup, DiscreteEnv({DType::kF32, {4}}, 2));
  EXPECT_EQ(policy.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(
      policy.status().message(),
      testing::HasSubstr("network.layers[1]: a policy with a recurrent layer can't be exported"));
}

TEST(PolicyDescriptionTest, InvalidNetworkIsNamed) {
  ModelSetup setup;
  setup.network.layers = {LinearLayer(0)};
  const auto policy = DescribePolicy(setup, DiscreteEnv({DType::kF32, {4}}, 2));
  ASSERT_FALSE(policy.ok());
  EXPECT_THAT(policy.status().message(), testing::HasSubstr("network.layers[0].units"));
}

}  // namespace
}  // namespace troop
