#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"
#include "learners/rl/dqn.h"
#include "learners/rl/gpu_dqn.h"
#include "learners/sync/allreduce_step.h"
#include "nn/models/model.h"
#include "tests/collective/nccl_ranks.h"

// Learners on (emulated) GPUs that sum their gradients there, by the simulated NCCL, against
// learners on the CPU over sockets.
namespace troop {
namespace {

constexpr std::int64_t kBatch = 6, kInputs = 5;
constexpr int kRounds = 8;

TrainingConfig TheConfig(int which) {
  TrainingConfig config;
  config.learner.device = DeviceChoice::kCuda;
  config.learner.batch_size = kBatch;
  config.learner.target_update_every_updates = 3;
  config.n_step = 2;
  config.optimizer.learning_rate = 1e-3;
  config.network.layers = {LayerConfig{.type = LayerType::kLinear, .units = 40},
                           LayerConfig{.type = LayerType::kLinear, .units = 24}};
  config.network.dueling = which == 1;
  // More than one bucket: the first is sent while backward continues.
  if (which == 2) config.network.layers[0].units = config.network.layers[1].units = 540;
  return config;
}

EnvSpec TheEnv() {
  EnvSpec env;
  env.id = "test";
  env.observation = {DType::kF32, {kInputs}};
  env.action.count = 4;
  return env;
}

SampleBatch RandomBatch(std::uint64_t seed) {
  Rng rng({.run_seed = seed});
  SampleBatch b;
  b.key.resize(kBatch);
  b.probability.assign(kBatch, 0.1);
  b.policy_version.assign(kBatch, 0);
  b.burn_in.assign(kBatch, 0);
  b.observation = Tensor(DType::kF32, {kBatch, kInputs});
  b.next_observation = Tensor(DType::kF32, {kBatch, kInputs});
  b.action = Tensor(DType::kI32, {kBatch});
  b.reward = Tensor(DType::kF32, {kBatch, 2});
  b.discount = Tensor(DType::kF32, {kBatch, 2});
  for (float& x : b.observation.as<float>()) x = float(rng.Normal());
  for (float& x : b.next_observation.as<float>()) x = float(rng.Normal());
  for (float& x : b.reward.as<float>()) x = float(rng.Normal());
  std::ranges::fill(b.discount.as<float>(), 1.0f);
  for (std::int32_t& a : b.action.as<std::int32_t>()) a = std::int32_t(rng.Below(4));
  for (std::int64_t i = 0; i < kBatch; ++i) {
    b.length.push_back(1 + std::int32_t(rng.Below(2)));
    b.weight.push_back(rng.UniformF32());
  }
  return b;
}

// The outcome of the rounds, on each rank.
struct Course {
  std::vector<std::vector<float>> value;  // [rank][P], after the last round
  std::vector<std::vector<int>> given, applied;
  std::vector<std::uint64_t> updates;
};

// Rank r has batch (round, r); in round 2 rank 1 has none, in round 4 rank 0's has NaN, and in
// round 5 no rank has one.
enum class Way { kCpu, kThroughTheHost, kNccl };
Course Play(int size, const TrainingConfig& config, Way way) {
  Ranks hosts = MakeSocketRanks(size, {}), seconds = MakeSocketRanks(size, {});
  Course course;
  course.value.resize(std::size_t(size));
  course.given.resize(std::size_t(size));
  course.applied.resize(std::size_t(size));
  course.updates.resize(std::size_t(size));
  RunRanks(size, [&](int rank) {
    const auto r = std::size_t(rank);
    auto network = *MakeNetwork(ModelSetupOf(config), TheEnv());
    auto made = way != Way::kCpu ? MakeGpuDqn(config, TheEnv(), std::move(network), rank)
                                 : MakeDqn(config, TheEnv(), std::move(network));
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    Algorithm& algorithm = **made;
    std::unique_ptr<Collective> devices;
    if (way == Way::kNccl) {
      ASSERT_FALSE(algorithm.device_gradient()->device_values().empty());
      NcclOptions nccl = SimulatedNccl();
      nccl.device = algorithm.device_ordinal();
      auto group = MakeNcclGroup(std::move(seconds[r]), nccl);
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      devices = std::move(*group);
      algorithm.device_gradient()->ReduceOnDevice(true);
    }
    for (int round = 0; round < kRounds; ++round) {
      SampleBatch batch = RandomBatch(std::uint64_t(100 * round + rank));
      if (round == 4 && rank == 0) {
        batch.reward.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      }
      const bool none = (round == 2 && rank == 1) || round == 5;
      AllReduceStep one(hosts[r].get(), &algorithm, {.devices = devices.get()});
      std::vector<float> priority(kBatch);
      ASSERT_TRUE(one.Begin(none ? nullptr : &batch, 0.1, false, priority).ok());
      const auto end = one.Wait();
      ASSERT_TRUE(end.ok()) << end.status().ToString();
      course.given[r].push_back(end->given);
      course.applied[r].push_back(end->applied ? 1 : 0);
      EXPECT_EQ(end->update.ok(), round != 4 || rank != 0) << round;
    }
    const auto value = algorithm.value();
    course.value[r].assign(value.begin(), value.end());
    course.updates[r] = algorithm.updates();
    if (devices != nullptr) algorithm.device_gradient()->ReduceOnDevice(false);
  });
  return course;
}

void ExpectTheSame(int size, const TrainingConfig& config, Way way) {
  const Course here = Play(size, config, way), there = Play(size, config, Way::kCpu);
  for (int rank = 0; rank < size; ++rank) {
    const auto r = std::size_t(rank);
    EXPECT_EQ(here.value[r], here.value[0]) << "rank " << rank << " has other bits";
    EXPECT_EQ(here.given[r], there.given[r]);
    EXPECT_EQ(here.applied[r], there.applied[r]);
  }
  EXPECT_EQ(here.updates[0], there.updates[0]);
  EXPECT_EQ(here.updates[0], std::uint64_t(kRounds - 1));  // but that without a batch
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < here.value[0].size(); ++i) {
    error += std::pow(double(here.value[0][i]) - double(there.value[0][i]), 2);
    norm += std::pow(double(there.value[0][i]), 2);
  }
  EXPECT_LT(std::sqrt(error / norm), 1e-5);
}

class DeviceNcclTest : public testing::TestWithParam<int> {};

TEST_P(DeviceNcclTest, UpdatesMatchCpu) {
  for (const int size : {2, 3}) ExpectTheSame(size, TheConfig(GetParam()), Way::kNccl);
}

TEST(DeviceLearnersTest, UpdatesThroughHostMatchCpuDespiteBadBatch) {
  ExpectTheSame(2, TheConfig(0), Way::kThroughTheHost);
}

INSTANTIATE_TEST_SUITE_P(Networks, DeviceNcclTest, testing::Range(0, 3));

}  // namespace
}  // namespace troop
