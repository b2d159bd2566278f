#include "learners/node/warm_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "learners/checkpoint.h"
#include "learners/rollback.h"
#include "nn/models/model.h"
#include "tests/core/temp_folder.h"
#include "tests/learners/supervised_fixture.h"

namespace troop {
namespace {

using testing::HasSubstr;

// A run folder on disk with one checkpoint of a network of two linear layers and a head.
class WarmStartTest : public testing::Test {
 protected:
  WarmStartTest() {
    env_.id = "test";
    env_.observation = {DType::kF32, {3}};
    env_.action.count = 2;
    LayerConfig layer;
    layer.type = LayerType::kLinear;
    layer.units = 8;
    config_.network.layers = {layer};
    config_.learner.device = DeviceChoice::kCpu;
  }
  // The value of the other run: 1000, 1001, …, in the order of the parameters.
  void WriteRun(float bad = 0, const RewardStatistics& rewards = {}) {
    TrainingConfig other = config_;
    other.seed = 77;
    const auto algorithm = *MakeAlgorithm(other, env_);
    TensorFile state = algorithm->State();
    for (auto& [name, tensor] : state.tensors) {
      Tensor filled(DType::kF32, tensor.shape());
      for (std::size_t i = 0; i < filled.as<float>().size(); ++i) {
        filled.as<float>()[i] = (name == "value" ? 1000.0f : 5000.0f) + float(i);
      }
      if (bad != 0 && name == "value") filled.as<float>()[1] = bad;
      tensor = filled;
    }
    state.metadata["updates"] = "40";
    const auto module = *MakeNetwork(ModelSetupOf(other), env_);
    const auto path =
        WriteCheckpoint(MakeDiskStorage(folder_.path())->get(), *module,
                        {.updates = 40, .config_toml = "", .state = state, .rewards = rewards}, 3);
    ASSERT_TRUE(path.ok()) << path.status().message();
    checkpoint_ = folder_.path() + "/" + *path;
    for (const ParamSpec& param : module->params()) there_[param.name] = param;
    config_.learner.init_from = folder_.path();
  }
  Status Begin(Algorithm* algorithm) { return BeginWarm(config_, env_, {}, algorithm).status(); }
  std::string Error(const std::string& init_from) {
    config_.learner.init_from = init_from;
    const auto algorithm = *MakeAlgorithm(config_, env_);
    const std::vector<float> before(algorithm->value().begin(), algorithm->value().end());
    const Status status = Begin(algorithm.get());
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(std::ranges::equal(algorithm->value(), before));
    EXPECT_EQ(CheckWarmStart(config_, env_).message(), status.message());
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    return status.message();
  }

  TempFolder folder_;
  EnvSpec env_;
  TrainingConfig config_;
  std::string checkpoint_;
  std::map<std::string, ParamSpec> there_;  // parameters of the other run
};

TEST_F(WarmStartTest, ValueAndTargetAreTheOtherRunsAndOptimizerIsFresh) {
  WriteRun();
  for (const std::string& from : {folder_.path(), checkpoint_, checkpoint_ + "/"}) {
    config_.learner.init_from = from;
    const auto algorithm = *MakeAlgorithm(config_, env_);
    const TensorFile fresh = algorithm->State();
    ASSERT_TRUE(Begin(algorithm.get()).ok()) << from;
    const TensorFile state = algorithm->State();
    for (const auto& [name, tensor] : state.tensors) {
      if (name != "value" && name != "target") {
        EXPECT_TRUE(std::ranges::equal(tensor.bytes(), fresh.tensors.at(name).bytes())) << name;
      }
    }
    for (const char* name : {"value", "target"}) {
      const auto values = state.tensors.at(name).as<float>();
      for (const auto& [parameter, spec] : there_) {
        for (std::int64_t i = 0; i < spec.shape.elements(); ++i) {
          ASSERT_EQ(values[std::size_t(spec.offset + i)], 1000.0f + float(spec.offset + i))
              << name << " " << parameter;
        }
      }
    }
    EXPECT_EQ(algorithm->updates(), 0u);
  }
}

// Former fault: the scale of the rewards began at 1, to which the weights do not belong.
TEST_F(WarmStartTest, RewardStatisticsTravelWithWeights) {
  const RewardStatistics rewards{.count = 77, .mean = -0.1, .squares = 7.7};
  for (const RewardStatistics& there : {rewards, RewardStatistics{}}) {
    WriteRun(0, there);
    const auto algorithm = *MakeAlgorithm(config_, env_);
    const auto taken = BeginWarm(config_, env_, {}, algorithm.get());
    ASSERT_TRUE(taken.ok()) << taken.status().ToString();
    EXPECT_EQ(*taken, there);
  }
  config_.learner.init_from = "";
  EXPECT_EQ(*BeginWarm(config_, env_, {}, MakeAlgorithm(config_, env_)->get()), RewardStatistics{});
}

TEST_F(WarmStartTest, HeadOfOtherSizeKeepsInitialValuesAndIsListed) {
  WriteRun();
  env_.action.count = 5;
  const auto algorithm = *MakeAlgorithm(config_, env_);
  const std::vector<float> initial(algorithm->value().begin(), algorithm->value().end());
  ASSERT_TRUE(Begin(algorithm.get()).ok());
  const auto module = *MakeNetwork(ModelSetupOf(config_), env_);
  std::vector<float> value = initial;
  const auto start = LoadWarmStart(config_, *module, value);
  ASSERT_TRUE(start.ok());
  std::size_t copied = 0, kept = 0;
  for (const ParamSpec& param : module->params()) {
    const auto there = there_.find(param.name);
    const bool same = there != there_.end() && there->second.shape == param.shape;
    (same ? copied : kept) += 1;
    for (std::int64_t i = 0; i < param.shape.elements(); ++i) {
      const float expected =
          same ? 1000.0f + float(there->second.offset + i) : initial[std::size_t(param.offset + i)];
      ASSERT_EQ(algorithm->value()[std::size_t(param.offset + i)], expected) << param.name;
    }
    EXPECT_EQ(start->Describe().find(param.name) == std::string::npos, same) << param.name;
  }
  EXPECT_GE(copied, 2u);
  EXPECT_GE(kept, 1u);
  EXPECT_EQ(start->tensors, std::int64_t(copied));
  EXPECT_EQ(start->not_matched.size(), kept);
  EXPECT_EQ(start->updates, 40u);
  EXPECT_EQ(start->Describe().find('\n'), std::string::npos);
}

TEST_F(WarmStartTest, NoMatchIsAnError) {
  WriteRun();
  env_.observation = {DType::kF32, {7}};
  env_.action.count = 4;
  config_.network.layers[0].units = 9;
  const std::string error = Error(folder_.path());
  EXPECT_THAT(error, HasSubstr("learner.init_from"));
  EXPECT_THAT(error, HasSubstr("has none of the"));
}

TEST_F(WarmStartTest, MissingPathIsAnError) {
  EXPECT_THAT(Error(folder_.path() + "/none"), HasSubstr("/none: neither a run"));
  // A run that has written nothing yet.
  std::filesystem::create_directories(folder_.path() + "/checkpoints");
  EXPECT_THAT(Error(folder_.path()), HasSubstr("no checkpoint yet"));
}

TEST_F(WarmStartTest, DamagedCheckpointIsAnError) {
  WriteRun();
  std::ofstream(checkpoint_ + "/weights.safetensors", std::ios::app) << "x";
  EXPECT_THAT(Error(checkpoint_), HasSubstr("weights.safetensors has"));
  EXPECT_THAT(Error(folder_.path()), HasSubstr("learner.init_from: " + folder_.path()));
}

TEST_F(WarmStartTest, NonFiniteWeightIsAnError) {
  WriteRun(std::numeric_limits<float>::infinity());
  EXPECT_THAT(Error(folder_.path()), HasSubstr("non-finite value"));
}

TEST_F(WarmStartTest, RollbackWithoutCheckpointReturnsToWarmWeights) {
  WriteRun();
  const auto algorithm = *MakeAlgorithm(config_, env_);
  const TempFolder own;
  const auto run = *MakeDiskStorage(own.path());
  ASSERT_TRUE(RollBack(algorithm.get(), run.get(), config_, env_).ok());
  EXPECT_EQ(algorithm->value()[0], 1000.0f);
  EXPECT_EQ(algorithm->State().tensors.at("target").as<float>()[0], 1000.0f);
}

TEST_F(WarmStartTest, WithoutTheKeyNothingChanges) {
  const auto algorithm = *MakeAlgorithm(config_, env_);
  const std::vector<float> before(algorithm->value().begin(), algorithm->value().end());
  ASSERT_TRUE(Begin(algorithm.get()).ok());
  EXPECT_TRUE(CheckWarmStart(config_, env_).ok());
  EXPECT_TRUE(std::ranges::equal(algorithm->value(), before));
}

// The parts of a tensor-parallel text model are slices of the weights on disk. The oracle is the
// layout of the whole model: each sliced parameter has a part of the elements of the file.
TEST_F(WarmStartTest, TensorParallelRanksStartAtSlicesOfSameWeights) {
  TrainingConfig config = test::SupervisedConfig("bert");
  config.model.pretrained = "";
  config.learner.device = DeviceChoice::kCpu;
  config.seed = 5;
  const auto spec = *MakeNetwork(ModelSetupOf(config), env_);
  const auto trained = *MakeAlgorithm(config, env_);
  ASSERT_TRUE(WriteCheckpoint(MakeDiskStorage(folder_.path())->get(), *spec,
                              {.updates = 3, .config_toml = "", .state = trained->State()}, 1)
                  .ok());
  std::vector<float> on_disk(trained->value().begin(), trained->value().end());
  config.seed = 6;
  config.learner.init_from = folder_.path();
  std::vector<float> found;
  for (int rank = 0; rank < 2; ++rank) {
    const TensorParallelRank place{.rank = rank, .ranks = 2};
    const auto part = *MakeAlgorithm(config, env_, place);
    ASSERT_TRUE(BeginWarm(config, env_, place, part.get()).ok());
    found.insert(found.end(), part->value().begin(), part->value().end());
  }
  // Both parts together have every weight of the file, and no other value.
  std::ranges::sort(on_disk);
  std::ranges::sort(found);
  EXPECT_TRUE(std::ranges::includes(
      on_disk, std::vector<float>(found.begin(), std::unique(found.begin(), found.end()))));
  EXPECT_TRUE(std::ranges::includes(
      found, std::vector<float>(on_disk.begin(), std::unique(on_disk.begin(), on_disk.end()))));
}

}  // namespace
}  // namespace troop
