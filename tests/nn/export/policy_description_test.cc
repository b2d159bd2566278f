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

// Each branch begins with a part of the input, and all outputs together are the output.
TEST(PolicyDescriptionTest, BranchesBeginWithPartsAndAddUp) {
  const PolicyCase c = PolicyCaseNamed("parts_stack");
  const auto policy = DescribePolicy(c.setup, c.env);
  ASSERT_TRUE(policy.ok()) << policy.status().ToString();
  const PolicyLayer& parts = policy->layers.at(1);
  ASSERT_EQ(parts.kind, PolicyLayerKind::kParts);
  ASSERT_EQ(parts.branches.size(), 3u);
  const std::int64_t first[] = {3, 45, 47};
  std::int64_t features = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<PolicyLayer>& branch = parts.branches[i];
    EXPECT_EQ(branch.front().kind, PolicyLayerKind::kPart);
    EXPECT_EQ(branch.front().in, (Shape{3, 209}));
    EXPECT_EQ(branch.front().first, first[i]);
    features += branch.back().out.elements();
  }
  EXPECT_EQ(parts.branches[1].size(), 1u);
  EXPECT_EQ(parts.out, Shape{features});
  // Users find the names and places of the parts.
  const auto json = ParseJson(EncodePolicy(*policy));
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  const auto& named = json->Find("observations")->array[0].Find("parts")->array;
  ASSERT_EQ(named.size(), 4u);
  EXPECT_EQ(named[3].Find("name")->string, "right");
  EXPECT_EQ(policy->layers.back().kind, PolicyLayerKind::kActionMask);
}

TEST(PolicyDescriptionTest, RecurrentLayersHaveState) {
  ModelSetup setup;
  setup.algorithm = AlgorithmKind::kPpo;
  setup.network.layers = {LinearLayer(4),
                          {.type = LayerType::kGru, .units = 4},
                          {.type = LayerType::kLstm, .units = 3}};
  const auto policy = DescribePolicy(setup, DiscreteEnv({DType::kF32, {4}}, 2));
  ASSERT_TRUE(policy.ok()) << policy.status().ToString();
  EXPECT_EQ(policy->state_size(), 4 + 2 * 3);
  EXPECT_THAT(
      EncodePolicy(*policy),
      testing::HasSubstr(R"({"kind": "lstm", "tensors": "layers.2", "in": [4], "out": [3]})"));
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
