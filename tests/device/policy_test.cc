#include "actors/inference/gpu_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/philox.h"
#include "nn/models/model.h"

namespace troop {
namespace {

constexpr std::int64_t kSize = 6;

LayerConfig Convolution(std::int64_t filters, std::int64_t kernel) {
  LayerConfig layer;
  layer.type = LayerType::kConv2d;
  layer.filters = filters;
  layer.kernel = kernel;
  return layer;
}

struct Problem {
  ActingConfig config;
  EnvSpec env;
};
// Numbers; pictures; pictures in a stack, with a dueling head; numbers by quantiles; pictures by
// atoms, with a dueling head.
std::vector<Problem> Problems() {
  std::vector<Problem> all(5);
  for (Problem& p : all) {
    p.env.id = "test";
    p.env.action.count = 5;
    p.config.model.network.dueling = false;
  }
  for (std::size_t i : {0, 3}) all[i].env.observation = {DType::kF32, {7}};
  for (std::size_t i : {1, 2, 4}) {
    all[i].env.observation = {DType::kU8, {9, 8, 3}};
    all[i].env.observation_scale = 1.0f / 255;
    all[i].config.model.network.layers = {Convolution(8, 3),
                                          LayerConfig{.type = LayerType::kLinear, .units = 24}};
  }
  all[2].config.env.frame_stack = all[2].config.model.frame_stack = 3;
  for (std::size_t i : {2, 4}) all[i].config.model.network.dueling = true;
  all[2].config.model.network.dueling_units = 16;
  all[3].config.model.critic = CriticKind::kQuantile;
  all[4].config.model.critic = CriticKind::kCategorical;
  for (std::size_t i : {3, 4}) all[i].config.model.atoms = 9;
  all[4].config.model.v_min = -1, all[4].config.model.v_max = 4;
  return all;
}

Tensor Draw(const TensorSpec& spec, std::int64_t rows, Rng* rng) {
  Tensor t(spec.dtype, spec.shape.Prepend(rows));
  if (spec.dtype == DType::kU8) {
    for (std::uint8_t& x : t.as<std::uint8_t>()) x = std::uint8_t(rng->Below(256));
  } else {
    for (float& x : t.as<float>()) x = float(rng->Normal());
  }
  return t;
}

void ChoosesAsOnTheCpu(Problem problem, NetworkPrecision precision, double tolerance) {
  problem.config.model.network.precision = precision;
  const auto device = MakeGpuPolicy(problem.config, problem.env, kSize);
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  problem.config.model.network.precision = NetworkPrecision::kFp32;
  const auto local = *MakeLocalPolicy(problem.config, problem.env, kSize);
  const auto module = *MakeNetwork(problem.config.model, problem.env);
  std::vector<float> value(std::size_t(ParameterCount(*module)));
  Rng rng({.run_seed = 3});
  for (const std::uint64_t version : {1, 2}) {
    InitParameters(*module, version, value);
    ASSERT_TRUE((*device)->SetWeights(version, value).ok());
    ASSERT_TRUE(local->SetWeights(version, value).ok());
    for (const std::int64_t rows : {kSize, std::int64_t{1}, std::int64_t{5}}) {
      const Tensor observation = Draw(NetworkInput(problem.config.model, problem.env), rows, &rng);
      std::vector<ExploreKey> keys(static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < keys.size(); ++i)
        keys[i] = {.env = i, .step = 5 + i, .epsilon = i % 2 == 0 ? 0 : 0.8};
      (*device)->Submit(observation, keys);
      local->Submit(observation, keys);
      const PolicyOutput *got = (*device)->Poll(), *want = local->Poll();
      EXPECT_EQ(got->version, version);
      ASSERT_EQ(got->q.spec(), want->q.spec());
      ASSERT_EQ(got->action.spec(), want->action.spec());
      double error = 0, norm = 0;
      for (std::size_t i = 0; i < want->q.as<float>().size(); ++i) {
        const double g = got->q.as<float>()[i], w = want->q.as<float>()[i];
        error += (g - w) * (g - w);
        norm += w * w;
      }
      EXPECT_LT(std::sqrt(error / norm), tolerance);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto action = std::size_t(got->action.as<std::int32_t>()[i]);
        const auto row = got->q.as<float>().subspan(i * 5, 5);
        EXPECT_EQ(got->q_taken.as<float>()[i], row[action]);
        EXPECT_EQ(got->q_max.as<float>()[i], *std::ranges::max_element(row));
        if (tolerance < 1e-4) {
          EXPECT_EQ(got->action.as<std::int32_t>()[i], want->action.as<std::int32_t>()[i]);
        }
      }
      EXPECT_EQ((*device)->Poll(), nullptr);  // an output comes once
    }
  }
}

TEST(DevicePolicyTest, MatchesCpu) {
  for (const Problem& problem : Problems())
    ChoosesAsOnTheCpu(problem, NetworkPrecision::kFp32, 1e-5);
}

TEST(DevicePolicyTest, MatchesCpuInBf16) {
  for (const Problem& problem : Problems())
    ChoosesAsOnTheCpu(problem, NetworkPrecision::kBf16, 2e-2);
}

TEST(DevicePolicyTest, MatchesCpuInTf32) {
  for (const Problem& problem : Problems())
    ChoosesAsOnTheCpu(problem, NetworkPrecision::kTf32, 2e-3);
}

TEST(DevicePolicyTest, RejectsMismatchedWeightsAndCpuOnlyFeatures) {
  Problem problem = Problems()[0];
  const auto device = MakeGpuPolicy(problem.config, problem.env, kSize);
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ((*device)->SetWeights(1, std::vector<float>(3)).code(), Code::kInvalidArgument);
  problem.config.model.network.normalize_observations = true;
  const auto refused = MakeGpuPolicy(problem.config, problem.env, kSize);
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("network.normalize_observations"), std::string::npos);
}

}  // namespace
}  // namespace troop
