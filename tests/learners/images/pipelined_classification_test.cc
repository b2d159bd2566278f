// Stages of image classifiers: their updates against those of one device that accumulates the same
// micro-batches, which image_classification_test.cc compares with plain loops.
#include "learners/images/pipelined_classification.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "learners/images/image_classification.h"
#include "learners/images/image_pipeline.h"
#include "learners/sync/allreduce_step.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "tests/learners/images/image_fixture.h"
#include "tests/nn/tensor_ranks.h"

namespace troop {
namespace {

using test::ImageConfig;
using test::RandomImages;
using test::SimRanks;

constexpr int kRows = 3;     // of a micro-batch
constexpr int kImages = 20;  // so that the second batch of an epoch is smaller
constexpr int kBatch = 12;   // of all workers
constexpr std::uint64_t kUpdates = 5;

// A config with momentum and clipping, where the bytes depend on the norm.
TrainingConfig StageConfig(int dp, int pp) {
  TrainingConfig config = ImageConfig();
  config.learner.batch_size = kBatch;
  config.learner.max_grad_norm = 0.5;
  config.learner.class_weights = ClassWeights::kBalanced;
  config.optimizer.momentum = 0.9;
  config.optimizer.weight_decay = 0.01;
  config.mesh.dp = dp, config.mesh.pp = pp;
  config.pipeline.micro_batches = kBatch / kRows / dp;
  return config;
}

// One rank of a mesh of dp x pp learners; with one stage, a learner that accumulates the same
// micro-batches.
struct Stage {
  Stage(const TrainingConfig& config, Collective* group) : all(group) {
    const int pp = int(config.mesh.pp), part = group->rank() % pp, model = group->rank() / pp;
    const auto data = RandomImages(kImages, 6);
    auto made = pp == 1
                    ? MakeImageClassification(config, data, {})
                    : MakePipelinedClassification(config, data, {}, {.rank = part, .ranks = pp});
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    algorithm = *std::move(made);
    if (pp == 1) return;
    same_part = *group->Split(part, model);
    same_model = *group->Split(model, part);
    algorithm->tensor_parallel()->SetTensorGroup(same_model.get(), nullptr);
  }
  ~Stage() {
    if (same_model != nullptr) algorithm->tensor_parallel()->SetTensorGroup(nullptr, nullptr);
  }
  Result<AllReduceStep::Outcome> Round(bool gathers = false) {
    AllReduceStep round(all, algorithm.get(),
                        {.gradients = same_part.get(), .want_state = gathers});
    std::vector<float> priority(1);
    const Status begun = round.Begin(&batch, 0, false, priority);
    if (!begun.ok()) return begun;
    return round.Wait();
  }
  const SampleBatch batch;
  Collective* const all;
  std::unique_ptr<Collective> same_part, same_model;
  std::unique_ptr<Algorithm> algorithm;
};

// Losses, and the state after the last update, of a run on one device or of a mesh.
struct Course {
  std::vector<double> losses, norms;
  TensorFile state;
};

// Runs kUpdates updates with a thread per learner; the state is that which learner 0 gathers.
Course Run(const TrainingConfig& config) {
  const auto size = int(config.mesh.dp * config.mesh.pp);
  SimGroup sim({.size = size});
  const Ranks ranks = SimRanks(size, &sim);
  Course course;
  RunRanks(size, [&](int rank) {
    Stage stage(config, ranks[std::size_t(rank)].get());
    for (std::uint64_t u = 0; u < kUpdates; ++u) {
      const auto round = stage.Round(u + 1 == kUpdates);
      ASSERT_TRUE(round.ok()) << round.status().ToString();
      ASSERT_TRUE(round->applied);
      if (rank > 0) continue;
      course.losses.push_back(round->report.loss);
      course.norms.push_back(round->report.gradient_norm);
    }
    if (rank == 0) course.state = WholeStateOf(*stage.algorithm);
    // Only the first stage holds the whole model.
    if (rank % config.mesh.pp > 0) {
      EXPECT_TRUE(stage.algorithm->tensor_parallel()->WholeValue().empty());
    }
  });
  return course;
}

// Learners without stages, with the same micro-batches.
Course OneStage(int dp) {
  TrainingConfig config = StageConfig(dp, 1);
  config.learner.micro_batch_size = kRows;
  return Run(config);
}

// Bit for bit, with the optimizer and the counters.
void ExpectEqualStates(const TensorFile& a, const TensorFile& b) {
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_TRUE(b.tensors.contains(name)) << name;
    EXPECT_TRUE(std::ranges::equal(tensor.as<float>(), b.tensors.at(name).as<float>())) << name;
  }
}

// Gradients, norms, running statistics and optimizer: the order of all sums is that of one device.
TEST(PipelinedClassificationTest, EveryScheduleGivesTheBytesOfOneDevice) {
  const Course expected = OneStage(1);
  for (const PipelineKind kind : {PipelineKind::kNone, PipelineKind::kGpipe, PipelineKind::k1f1b,
                                  PipelineKind::kInterleaved, PipelineKind::kZeroBubble}) {
    SCOPED_TRACE(EnumName(kind));
    TrainingConfig config = StageConfig(1, 2);
    config.pipeline.schedule = kind;
    if (kind == PipelineKind::kInterleaved) config.pipeline.chunks_per_stage = 2;
    config.pipeline.recompute = kind == PipelineKind::kGpipe;
    const Course course = Run(config);
    EXPECT_EQ(course.norms, expected.norms);
    ExpectEqualStates(course.state, expected.state);
    for (std::size_t u = 0; u < kUpdates; ++u)
      EXPECT_NEAR(course.losses[u], expected.losses[u], 1e-6);
  }
}

// More stages than micro-batches, and blocks of all kinds at the cuts.
TEST(PipelinedClassificationTest, CutsAndMicroBatchesChangeNothing) {
  const Course expected = OneStage(1);
  for (const std::vector<std::string>& stages :
       {std::vector<std::string>{"features.1", "features.8"}, {"features.3", "fc"}}) {
    TrainingConfig config = StageConfig(1, 3);
    config.pipeline.stages = stages;
    ExpectEqualStates(Run(config).state, expected.state);
  }
  ExpectEqualStates(Run(StageConfig(1, 5)).state, expected.state);
}

// Two workers, each of which is a pipeline. A sum of two numbers has one order.
TEST(PipelinedClassificationTest, WorkersOfStagesShareTheBatch) {
  const Course expected = OneStage(2), course = Run(StageConfig(2, 2));
  EXPECT_EQ(course.norms, expected.norms);
  ExpectEqualStates(course.state, expected.state);
}

// The state is that of the whole model, whatever the number of stages.
TEST(PipelinedClassificationTest, StateResumesAtAnotherNumberOfStages) {
  const Course before = Run(StageConfig(1, 3));
  TrainingConfig alone = StageConfig(1, 1);
  alone.learner.micro_batch_size = kRows;
  const auto expected = *MakeImageClassification(alone, RandomImages(kImages, 6), {});
  ASSERT_TRUE(expected->SetState(before.state).ok());
  std::vector<float> priority(1);
  ASSERT_TRUE(expected->Update(SampleBatch(), 0, priority).ok());
  SimGroup sim({.size = 2});
  const Ranks ranks = SimRanks(2, &sim);
  RunRanks(2, [&](int rank) {
    Stage stage(StageConfig(1, 2), ranks[std::size_t(rank)].get());
    ASSERT_TRUE(stage.algorithm->SetState(before.state).ok());
    ASSERT_EQ(stage.algorithm->updates(), kUpdates);
    ASSERT_TRUE(stage.Round(true).ok());
    if (rank == 0)
      ExpectEqualStates(stage.algorithm->tensor_parallel()->WholeState(), expected->State());
  });
}

// A weight of one stage that is not finite: no stage makes the update.
TEST(PipelinedClassificationTest, OneBadStageSkipsTheUpdateOnAll) {
  for (const int bad : {0, 1}) {
    SimGroup sim({.size = 2});
    const Ranks ranks = SimRanks(2, &sim);
    RunRanks(2, [&](int rank) {
      Stage stage(StageConfig(1, 2), ranks[std::size_t(rank)].get());
      TensorFile state = stage.algorithm->State();
      if (rank == bad) {
        Tensor value(DType::kF32, state.tensors.at("value").shape());
        std::ranges::copy(state.tensors.at("value").as<float>(), value.data<float>());
        value.data<float>()[0] = std::numeric_limits<float>::infinity();
        state.tensors["value"] = value;
        ASSERT_TRUE(stage.algorithm->SetState(state).ok());
      }
      const auto round = stage.Round();
      ASSERT_TRUE(round.ok()) << round.status().ToString();
      EXPECT_FALSE(round->applied) << rank;
      EXPECT_FALSE(round->update.ok()) << rank;
      EXPECT_EQ(stage.algorithm->updates(), 0u) << rank;
    });
  }
}

// A stage that leaves: the error reaches the others, which keep their weights.
TEST(PipelinedClassificationTest, LostStageEndsTheGroupWithoutAnUpdate) {
  SimGroup sim({.size = 3});
  const Ranks ranks = SimRanks(3, &sim);
  RunRanks(3, [&](int rank) {
    Stage stage(StageConfig(1, 3), ranks[std::size_t(rank)].get());
    ASSERT_TRUE(stage.Round().ok());
    // The others have finished the round, too.
    ASSERT_TRUE(RunOp(*stage.all, {.kind = OpKind::kBarrier}, {}, {}).ok());
    if (rank == 1) {
      stage.same_model->Abort(Unavailable("left"));
      return;
    }
    EXPECT_FALSE(stage.Round().ok());
    EXPECT_EQ(stage.algorithm->updates(), 1u);
  });
}

// The measured and the predicted idle time of the same runs.
TEST(PipelinedClassificationTest, CostHasIdleTimeAndMemoryWithTheirPrediction) {
  SimGroup sim({.size = 2});
  const Ranks ranks = SimRanks(2, &sim);
  RunRanks(2, [&](int rank) {
    Stage stage(StageConfig(1, 2), ranks[std::size_t(rank)].get());
    for (int u = 0; u < 2; ++u) ASSERT_TRUE(stage.Round().ok());
    const UpdateCost cost = stage.algorithm->cost_reporting()->TakeCost();
    EXPECT_EQ(cost.stage_runs, 1);  // the first of 16
    EXPECT_GT(cost.stage_s, cost.stage_idle_s);
    EXPECT_GE(cost.stage_idle_s, 0);
    EXPECT_GT(cost.planned_stage_s, cost.planned_idle_s);
    // 1F1B holds two micro-batches on the first stage and one on the last.
    EXPECT_GT(cost.stage_bytes, 0);
    EXPECT_GE(cost.planned_stage_bytes, 0.5 * cost.stage_bytes);
    EXPECT_LE(cost.planned_stage_bytes, 2 * cost.stage_bytes);
    EXPECT_EQ(cost.sequences > 0, rank == 1);
  });
}

// Chunks have the parameters of the whole model, in its order.
TEST(ImagePipelineTest, ChunksHaveTheParametersOfTheWhole) {
  for (const ModelArchitecture kind : {ModelArchitecture::kCnn, ModelArchitecture::kResNet18,
                                       ModelArchitecture::kAlexNet, ModelArchitecture::kVgg16}) {
    TrainingConfig config = StageConfig(1, 2);
    config.model.architecture = kind;
    config.model.image_height = config.model.image_width = 67;
    config.model.classifier_units = 8;
    config.pipeline.schedule = PipelineKind::kInterleaved;
    config.pipeline.chunks_per_stage = 2;
    const ImagePipeline pipeline = *MakeImagePipeline(config);
    const auto whole = *MakeTextModel(ModelSetupOf(config));
    ASSERT_EQ(pipeline.chunks.size(), 4u);
    EXPECT_EQ(pipeline.parameters, ParameterCount(*whole));
    std::size_t i = 0;
    for (const PipelineChunk& chunk : pipeline.chunks) {
      EXPECT_EQ(chunk.first_parameter, i);
      for (const ParamSpec& spec : chunk.module->params()) {
        const ParamSpec& same = whole->params()[i++];
        EXPECT_EQ(spec.name, same.name);
        EXPECT_EQ(spec.offset + chunk.offset, same.offset) << spec.name;
        EXPECT_EQ(spec.decays, same.decays) << spec.name;
      }
    }
    EXPECT_EQ(i, whole->params().size());
  }
}

// Each message names the value and the limit, or the blocks that exist.
TEST(ImagePipelineTest, WrongStagesAreRefused) {
  const auto error = [](int pp, std::vector<std::string> stages, int micro_batches = 4) {
    TrainingConfig config = StageConfig(1, pp);
    config.pipeline.stages = std::move(stages);
    config.pipeline.micro_batches = micro_batches;
    return MakeImagePipeline(config).status().message();
  };
  const auto says = [](const std::string& text, const std::string& words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  says(error(10, {}), "10 stages of 1 chunks exceed the 9 blocks");
  says(error(2, {"layer1"}), "no block \"layer1\"; the blocks are features.0, features.1");
  says(error(2, {"features.0"}), "\"features.0\" does not follow \"features.0\"");
  says(error(3, {"fc", "features.3"}), "\"features.3\" does not follow \"fc\"");
  says(error(3, {"fc"}), "has 1 names, must have 2");
  says(error(2, {}, 5), "5 micro-batches of 1 workers do not divide learner.batch_size = 12");
  EXPECT_EQ(error(9, {}), "");
}

}  // namespace
}  // namespace troop
