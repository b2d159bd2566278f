#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <numeric>

#include "core/base/failpoint.h"
#include "core/config/enum_format.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/supervised/gpu_supervised.h"
#include "learners/supervised/supervised.h"
#include "learners/supervised/text_evaluator.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "tests/learners/supervised_fixture.h"

// Text models on the (emulated) GPU. The tests of learners/ run with these models,
// too.
namespace troop {
namespace {

using test::SupervisedConfig;

std::unique_ptr<Algorithm> Make(const TrainingConfig& config) {
  auto made = MakeAlgorithm(config, ReviewSpec(ModelSetupOf(config)));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

TrainingConfig On(TrainingConfig config, DeviceChoice device) {
  config.learner.device = device;
  return config;
}

double Distance(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    size += double(b[i]) * double(b[i]);
  }
  return std::sqrt(difference / size);
}

// The first of PyTorch's updates; the rest are compared where they are computed faster.
TEST(DeviceSupervisedTest, UpdatesMatchPyTorch) {
  for (const std::string family : {"bert", "albert"}) {
    TrainingConfig config = SupervisedConfig(family);
    config.learner.micro_batch_size = family == "bert" ? 5 : 0;
    const auto there = Make(On(config, DeviceChoice::kCuda));
    const JsonValue& expected = *test::SupervisedExpected().Find(family);
    std::vector<float> priority(1);
    for (std::size_t update = 0; update < 4; ++update) {
      const auto report = there->Update(SampleBatch(), 0, priority);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_NEAR(report->loss, expected.Find("losses")->array[update].number, 1e-4);
      EXPECT_NEAR(report->gradient_norm, expected.Find("norms")->array[update].number, 1e-3);
    }
  }
}

// The CPU's course, with all that is dropped; in batches and pieces of them that don't divide.
TEST(DeviceSupervisedTest, DropoutMatchesCpu) {
  for (const char* const family : {"bert", "albert"}) {
    for (const AlgorithmKind algorithm : {AlgorithmKind::kClassifier, AlgorithmKind::kMaskedLm}) {
      SCOPED_TRACE(fmt::format("{} {}", family, algorithm));
      TrainingConfig config = SupervisedConfig(family);
      config.learner.algorithm = algorithm;
      config.learner.batch_size = 5;
      config.learner.micro_batch_size = 3;
      config.model.pretrained = "";
      config.model.dropout = 0.2;
      config.model.attention_dropout = 0.3;
      config.model.classifier_dropout = 0.4;
      const auto there = Make(On(config, DeviceChoice::kCuda)),
                 here = Make(On(config, DeviceChoice::kCpu));
      EXPECT_FALSE(there->device_gradient()->device_values().empty());
      std::vector<float> priority(1);
      for (int update = 0; update < 3; ++update) {
        const auto got = there->Update(SampleBatch(), 0, priority);
        const auto want = here->Update(SampleBatch(), 0, priority);
        ASSERT_TRUE(got.ok()) << got.status().ToString();
        EXPECT_NEAR(got->loss, want->loss, 1e-4 * want->loss);
        EXPECT_NEAR(got->gradient_norm, want->gradient_norm, 1e-3 * want->gradient_norm);
        EXPECT_NEAR(got->accuracy, want->accuracy, 1e-9);
        EXPECT_EQ(got->sequences, want->sequences);
      }
      EXPECT_LT(Distance(there->value(), here->value()), 1e-4);
      EXPECT_LT(Distance(there->external_optimizer()->optimizer().slots()[0].values,
                         here->external_optimizer()->optimizer().slots()[0].values),
                1e-3);
    }
  }
}

// Across RAdam's sixth update, the first that divides by the root of the squared gradients.
TEST(DeviceSupervisedTest, RAdamMatchesCpu) {
  TrainingConfig config = SupervisedConfig("bert");
  config.model.num_hidden_layers = 1;
  config.model.pretrained = "";
  config.optimizer.type = OptimizerType::kRAdam;
  config.optimizer.learning_rate = 0.02;
  config.optimizer.warmup_ratio = 0;
  const auto there = Make(On(config, DeviceChoice::kCuda)),
             here = Make(On(config, DeviceChoice::kCpu));
  config.optimizer.type = OptimizerType::kAdam;
  const auto adam = Make(On(config, DeviceChoice::kCpu));
  std::vector<float> priority(1);
  for (int update = 1; update <= 8; ++update) {
    for (Algorithm* const one : {there.get(), here.get(), adam.get()})
      ASSERT_TRUE(one->Update(SampleBatch(), 0, priority).ok());
    EXPECT_LT(Distance(there->value(), here->value()), 1e-4) << update;
  }
  EXPECT_GT(Distance(here->value(), adam->value()), 1e-2);
}

// A GPU makes queries of all tokens even in the last layer, and what is behind the attention of
// those that the head reads; in pieces of a batch, too.
TEST(DeviceSupervisedTest, CountsFlopsOfDevice) {
  TrainingConfig config = SupervisedConfig("bert");
  config.learner.micro_batch_size = 5;
  const auto there = Make(On(config, DeviceChoice::kCuda)),
             here = Make(On(config, DeviceChoice::kCpu));
  const auto data = LoadReviewData(config);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  std::vector<std::int32_t> all(std::size_t((*data)->train.size()));
  std::iota(all.begin(), all.end(), 0);
  const TextBatch batch =
      TextCollator(config, (*data)->tokenizer).ForTraining((*data)->train, all, {});
  ASSERT_EQ(batch.labels.size(), 12u);  // an update is of all reviews
  std::vector<float> priority(1);
  for (Algorithm* const one : {there.get(), here.get()})
    ASSERT_TRUE(one->Update(SampleBatch(), 0, priority).ok());
  EXPECT_EQ(there->cost_reporting()->TakeCost().flops,
            TrainingFlops(config, batch, LastLayer::kBehindAttention));
  EXPECT_EQ(here->cost_reporting()->TakeCost().flops,
            TrainingFlops(config, batch, LastLayer::kFromQueriesOn));
}

// Resumes after a stop within an epoch, with every kind of dropout.
TEST(DeviceSupervisedTest, ResumesBitForBit) {
  TrainingConfig config = SupervisedConfig("bert");
  config.learner.batch_size = 3;
  config.model.num_hidden_layers = 1;
  config.model.pretrained = "";
  config.model.dropout = config.model.attention_dropout = config.model.classifier_dropout = 0.2;
  std::vector<float> priority(1);
  const auto advance = [&](Algorithm* one, int updates) {
    for (int i = 0; i < updates; ++i) ASSERT_TRUE(one->Update(SampleBatch(), 0, priority).ok());
  };
  const auto whole = Make(On(config, DeviceChoice::kCuda)),
             first = Make(On(config, DeviceChoice::kCuda));
  advance(whole.get(), 5);
  advance(first.get(), 2);
  const auto second = Make(On(config, DeviceChoice::kCuda));
  ASSERT_TRUE(second->SetState(first->State()).ok());
  EXPECT_EQ(second->updates(), 2u);
  advance(second.get(), 3);
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(second->value()), std::as_bytes(whole->value())));
}

// Callers may modify a gradient before the step: here the test doubles it and sets one value.
TEST(DeviceSupervisedTest, AppliesModifiedGradient) {
  TrainingConfig config = SupervisedConfig("bert");
  config.optimizer.type = OptimizerType::kSgd;  // Adam's steps hardly depend on the norm
  config.learner.max_grad_norm = 0.01;
  config.optimizer.learning_rate = 20;
  const auto there = Make(On(config, DeviceChoice::kCuda)),
             here = Make(On(config, DeviceChoice::kCpu));
  std::vector<float> priority(1);
  for (int update = 0; update < 3; ++update) {
    for (Algorithm* const one : {there.get(), here.get()}) {
      ASSERT_TRUE(one->ComputeGradient(SampleBatch(), priority).ok());
      for (float& g : one->gradient()) g *= 2;
      one->gradient()[3] = 0.5f;
      one->ApplyGradient(0, one->GradientNorm());
    }
  }
  EXPECT_EQ(there->updates(), 3u);
  EXPECT_LT(Distance(there->value(), here->value()), 1e-5);
}

TEST(DeviceSupervisedTest, RejectsCpuOnlyFeatures) {
  const auto refused = [](const TrainingConfig& config, const std::string& why,
                          const TensorParallelRank& tensor = {}) {
    const auto made =
        MakeAlgorithm(On(config, DeviceChoice::kCuda), ReviewSpec(ModelSetupOf(config)), tensor);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
    EXPECT_NE(made.status().message().find(why), std::string::npos) << made.status().message();
    EXPECT_TRUE(
        MakeAlgorithm(On(config, DeviceChoice::kAuto), ReviewSpec(ModelSetupOf(config)), tensor)
            .ok())
        << why;
  };
  TrainingConfig config = SupervisedConfig("bert");
  config.model.pretrained = "";
  refused(config,
          "model.num_attention_heads makes a tensor-parallel rank with 1 heads of 8 elements; on a "
          "GPU the total "
          "must be a multiple of 16; or set learner.device = \"cpu\"",
          {.rank = 0, .ranks = 3});
  TrainingConfig other = config;
  other.model.architecture = ModelArchitecture::kLstm;
  refused(other, "model.architecture = \"lstm\" only runs on the CPU");
  other = config;
  other.optimizer.type = OptimizerType::kAdaGrad;
  refused(other, "optimizer.type = \"adagrad\" only runs on the CPU");
  other = config;
  other.network.precision = NetworkPrecision::kBf16;
  refused(other,
          "model.num_attention_heads makes heads of 8 elements; on a GPU, attention in bf16 needs "
          "heads of "
          "64; or set learner.device = \"cpu\"");
}

// In bf16, with heads that it takes: near the CPU's bf16.
TEST(DeviceSupervisedTest, Bf16StaysNearCpu) {
  TrainingConfig config = SupervisedConfig("bert");
  config.model.pretrained = "";
  config.model.hidden_size = 128;
  config.model.num_attention_heads = 2;
  config.network.precision = NetworkPrecision::kBf16;
  config.run.max_updates = 5;
  const auto there = Make(On(config, DeviceChoice::kCuda)),
             here = Make(On(config, DeviceChoice::kCpu));
  std::vector<float> priority(1);
  for (int update = 0; update < 5; ++update) {
    const auto got = there->Update(SampleBatch(), 0, priority);
    const auto want = here->Update(SampleBatch(), 0, priority);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_NEAR(got->loss, want->loss, 0.03);
  }
}

// A judge on the GPU, and one that learner.device forbids it.
TEST(DeviceSupervisedTest, EvaluatesReviewsOnDevice) {
  const TrainingConfig config = SupervisedConfig("albert");
  auto loaded = LoadReviewData(config);
  ASSERT_TRUE(loaded.ok());
  auto data = std::make_shared<ReviewData>(**loaded);
  data->test = data->train;
  const auto algorithm = Make(config);
  std::vector<EvaluationReport> reports;
  for (const DeviceChoice device : {DeviceChoice::kCuda, DeviceChoice::kCpu}) {
    auto trial = TextEvaluator::Make(On(config, device), data, {.episodes = 12, .final = true},
                                     algorithm->value());
    ASSERT_TRUE(trial.ok()) << trial.status().ToString();
    while ((*trial)->Advance(1) != Evaluator::State::kOver) {
    }
    reports.push_back((*trial)->Report());
  }
  EXPECT_EQ(reports[0].return_mean, reports[1].return_mean);
  EXPECT_NEAR(reports[0].loss, reports[1].loss, 1e-5);
}

// A permanent failure is reported as unavailable, not as non-finite values; value() then holds NaN,
// so that no caller uses stale weights.
TEST(DeviceSupervisedTest, FailedGpuIsUnavailableNotNonFinite) {
  setenv("TROOP_FAILPOINT", "learner.device:2", 1);
  ReloadFailpoint();
  const auto there = Make(On(SupervisedConfig("bert"), DeviceChoice::kCuda));
  std::vector<float> priority(1);
  EXPECT_TRUE(there->Update(SampleBatch(), 0, priority).ok());
  EXPECT_TRUE(AllFinite(there->value()));
  EXPECT_TRUE(there->CheckFinite().ok());
  EXPECT_TRUE(there->Update(SampleBatch(), 0, priority).ok());
  unsetenv("TROOP_FAILPOINT");
  ReloadFailpoint();
  EXPECT_FALSE(AllFinite(there->value()));
  for (const Status& status :
       {there->CheckFinite(), there->Update(SampleBatch(), 0, priority).status()}) {
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("failpoint learner.device"), std::string::npos)
        << status.message();
  }
}

}  // namespace
}  // namespace troop
