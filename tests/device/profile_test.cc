#include "core/config/enum_format.h"
#include "learners/supervised/gpu_profile.h"

#include <gtest/gtest.h>

#include "kernels/cuda/runtime/device.h"
#include "learners/supervised/gpu_supervised.h"
#include "learners/supervised/supervised.h"
#include "tests/collective/nccl_ranks.h"
#include "tests/learners/supervised_fixture.h"

// Measurements of this machine's (emulated) GPU that plans and reports use.
namespace troop {
namespace {

using test::SupervisedConfig;

TrainingConfig OnGpu(TrainingConfig config) {
  config.learner.device = DeviceChoice::kCuda;
  return config;
}

double BytesInUse() {
  std::string error;
  const auto device = cuda::Device::Open(0, &error);
  return double(device->info().memory_bytes - device->FreeBytes());
}

TEST(DeviceProfileTest, NamesGpuThatLearnersWouldUse) {
  TrainingConfig config = SupervisedConfig("bert");
  config.learner.device = DeviceChoice::kAuto;
  EXPECT_EQ(*GpuOf(config), "emulated");
  EXPECT_EQ(GpusHere(), 1);
  config.learner.device = DeviceChoice::kCpu;
  EXPECT_EQ(GpuOf(config).status().code(), Code::kUnavailable);
  config = OnGpu(config);
  config.model.architecture = ModelArchitecture::kLstm;
  EXPECT_EQ(GpuOf(config).status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(MeasureGpuPeak(config).ok());
}

TEST(DeviceProfileTest, MeasuresPeakInPrecisionOfRun) {
  TrainingConfig config = OnGpu(SupervisedConfig("bert"));
  const auto peak = MeasureGpuPeak(config);
  ASSERT_TRUE(peak.ok()) << peak.status().ToString();
  EXPECT_GT(*peak, 1e5);
  EXPECT_LT(*peak, 1e12);  // of an emulated one
}

// The predicted memory of an update matches the measured one, within the pool's rounding and the
// size of batch copies and workspaces.
TEST(DeviceProfileTest, PredictsMemory) {
  struct Case {
    const char* family;
    AlgorithmKind algorithm;
    bool halves, recompute;
  };
  for (const Case& c : {Case{"bert", AlgorithmKind::kClassifier, false, false},
                        Case{"albert", AlgorithmKind::kMaskedLm, false, false},
                        Case{"bert", AlgorithmKind::kMaskedLm, true, true},
                        Case{"albert", AlgorithmKind::kClassifier, true, false}}) {
    SCOPED_TRACE(fmt::format("{} {}", c.family, c.algorithm));
    TrainingConfig config = OnGpu(SupervisedConfig(c.family));
    config.model.pretrained = "";
    config.learner.algorithm = c.algorithm;
    config.model.hidden_size = 128;
    config.model.num_attention_heads = 2;
    config.model.num_hidden_layers = 3;
    config.model.intermediate_size = 256;
    config.model.gradient_checkpointing = c.recompute;
    if (c.halves) config.network.precision = NetworkPrecision::kBf16;
    const double before = BytesInUse();
    auto algorithm = *MakeSupervised(config, TensorParallelRank(), 0);
    std::vector<float> priority(1);
    ASSERT_TRUE(algorithm->Update(SampleBatch(), 0, priority).ok());
    const double used = BytesInUse() - before;
    const UpdateCost cost = algorithm->cost_reporting()->TakeCost();
    const bool masked = config.learner.algorithm == AlgorithmKind::kMaskedLm;
    const double outputs = masked ? 0.15 * cost.tokens : cost.sequences;
    const auto foreseen = PredictGpuBytes(config, {}, cost.tokens, outputs);
    ASSERT_TRUE(foreseen.ok()) << foreseen.status().ToString();
    // cuBLAS's workspace is the library's.
    EXPECT_GT(*foreseen, 0.8 * used);
    EXPECT_LT(*foreseen, 1.1 * used);
  }
}

TEST(DeviceProfileTest, PartOfModelNeedsLessMemory) {
  TrainingConfig config = OnGpu(SupervisedConfig("bert"));
  const auto whole = PredictGpuBytes(config, {}, 1000, 12);
  const auto part = PredictGpuBytes(config, {.rank = 0, .ranks = 2}, 1000, 12);
  ASSERT_TRUE(whole.ok() && part.ok());
  EXPECT_LT(*part, 0.9 * *whole);
  EXPECT_GT(*part, 0.5 * *whole);
  EXPECT_FALSE(PredictGpuBytes(config, {.rank = 0, .ranks = 4}, 1000, 12).ok());  // heads of 8
}

TEST(DeviceProfileTest, TimesAllReduceOfTwoGpus) {
  const auto seconds = TimeGpuAllReduce(0, 0, SimulatedNccl(), 1000, 5);
  ASSERT_TRUE(seconds.ok()) << seconds.status().ToString();
  EXPECT_GT(*seconds, 0);
  EXPECT_LT(*seconds, 10);
  // One of them does not exist: both learn.
  EXPECT_FALSE(TimeGpuAllReduce(0, 1, SimulatedNccl(), 1000, 5).ok());
  EXPECT_FALSE(TimeGpuAllReduce(1, 0, SimulatedNccl(), 1000, 5).ok());
}

}  // namespace
}  // namespace troop
