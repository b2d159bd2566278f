#include <gtest/gtest.h>

#include <vector>

#include "core/base/philox.h"
#include "learners/rl/gpu_dqn.h"
#include "nn/models/model.h"

// Batches that are copied to the (emulated) GPU while the update before them works.
namespace troop {
namespace {

constexpr std::int64_t kBatch = 6;

struct Problem {
  TrainingConfig config;
  EnvSpec env;
};

Problem MakeProblem(bool pictures) {
  Problem p;
  p.env.id = "test";
  p.env.action.count = 3;
  p.env.observation = {DType::kF32, {4}};
  p.config.network.layers = {LayerConfig{.type = LayerType::kLinear, .units = 10}};
  p.config.learner.device = DeviceChoice::kCuda;
  p.config.learner.target_update_every_updates = 4;
  p.config.optimizer.learning_rate = 1e-3;
  if (!pictures) return p;
  LayerConfig conv;
  conv.type = LayerType::kConv2d;
  conv.filters = 4;
  conv.kernel = 3;
  p.env.observation = {DType::kU8, {6, 5}};
  p.env.observation_scale = 1.0f / 255;
  p.config.frame_stack = 3;
  p.config.network.layers = {conv, LayerConfig{.type = LayerType::kLinear, .units = 10}};
  return p;
}

SampleBatch RandomBatch(const Problem& p, std::uint64_t seed, std::int64_t rows = kBatch) {
  Rng rng({.run_seed = seed});
  const TensorSpec seen = NetworkInput(ModelSetupOf(p.config), p.env);
  SampleBatch b;
  for (Tensor* t : {&b.observation, &b.next_observation}) {
    *t = Tensor(seen.dtype, seen.shape.Prepend(rows));
    if (seen.dtype == DType::kU8) {
      for (std::uint8_t& x : t->as<std::uint8_t>()) x = std::uint8_t(rng.Below(256));
    } else {
      for (float& x : t->as<float>()) x = float(rng.Normal());
    }
  }
  b.action = Tensor(DType::kI32, {rows});
  b.reward = Tensor(DType::kF32, {rows, 2});
  b.discount = Tensor(DType::kF32, {rows, 2});
  for (float& x : b.reward.as<float>()) x = float(rng.Normal());
  std::ranges::fill(b.discount.as<float>(), 1.0f);
  for (std::int32_t& a : b.action.as<std::int32_t>()) a = std::int32_t(rng.Below(3));
  for (std::int64_t i = 0; i < rows; ++i) {
    b.key.push_back({});
    b.length.push_back(1 + std::int32_t(rng.Below(2)));
    b.weight.push_back(rng.UniformF32());
    b.probability.push_back(0.1);
    b.policy_version.push_back(0);
    b.burn_in.push_back(0);
  }
  return b;
}

enum class Said { kNothing, kTheNext, kAnother, kOneOfAnotherSize, kABadOne, kNowAndThen };

// Weights and priorities behind ten updates.
std::vector<float> Play(const Problem& p, Said said) {
  auto made = MakeGpuDqn(p.config, p.env, *MakeNetwork(ModelSetupOf(p.config), p.env));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  Algorithm& algorithm = **made;
  std::vector<SampleBatch> batches;
  for (std::uint64_t i = 0; i < 11; ++i) batches.push_back(RandomBatch(p, 50 + i));
  const SampleBatch other = RandomBatch(p, 7), large = RandomBatch(p, 8, kBatch + 1);
  SampleBatch bad = RandomBatch(p, 9);
  bad.length[0] = 5;
  std::vector<float> out;
  for (std::size_t i = 0; i < 10; ++i) {
    const SampleBatch* next = &batches[i + 1];
    if (said == Said::kNothing || (said == Said::kNowAndThen && i % 3 == 1)) next = nullptr;
    if (said == Said::kAnother) next = &other;
    if (said == Said::kOneOfAnotherSize) next = &large;
    if (said == Said::kABadOne) next = &bad;
    algorithm.fused_update()->ExpectNext(next);
    std::vector<float> priority(kBatch);
    EXPECT_TRUE(algorithm.Update(batches[i], 0.5, priority).ok());
    out.insert(out.end(), priority.begin(), priority.end());
  }
  const auto value = algorithm.value();
  out.insert(out.end(), value.begin(), value.end());
  return out;
}

TEST(DeviceBatchesTest, PrefetchHintsDoNotChangeResults) {
  for (const bool pictures : {false, true}) {
    const Problem p = MakeProblem(pictures);
    const std::vector<float> plain = Play(p, Said::kNothing);
    for (const Said said : {Said::kTheNext, Said::kAnother, Said::kOneOfAnotherSize, Said::kABadOne,
                            Said::kNowAndThen}) {
      EXPECT_EQ(Play(p, said), plain) << "pictures " << pictures << ", said " << int(said);
    }
  }
}

// A batch that was prefetched for an update that did not happen is not used for the next update.
TEST(DeviceBatchesTest, DoesNotConfuseBatchWithPrefetchedOne) {
  const Problem p = MakeProblem(false);
  auto one = *MakeGpuDqn(p.config, p.env, *MakeNetwork(ModelSetupOf(p.config), p.env));
  auto two = *MakeGpuDqn(p.config, p.env, *MakeNetwork(ModelSetupOf(p.config), p.env));
  SampleBatch first = RandomBatch(p, 1), second = RandomBatch(p, 2), third = RandomBatch(p, 3);
  std::vector<float> a(kBatch), b(kBatch);
  one->fused_update()->ExpectNext(&second);
  ASSERT_TRUE(one->Update(first, 0, a).ok() && two->Update(first, 0, b).ok());
  ASSERT_TRUE(one->Update(third, 0, a).ok() && two->Update(third, 0, b).ok());
  ASSERT_TRUE(one->Update(second, 0, a).ok() && two->Update(second, 0, b).ok());
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace troop
