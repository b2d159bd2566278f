// Weights of checkpoints as policy files: libtroop_policy loads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/executor.h"
#include "core/storage/memory_storage.h"
#include "core/tensor/trajectory.h"
#include "learners/best_checkpoint.h"
#include "learners/checkpoint.h"
#include "learners/node/checkpoint_writer.h"
#include "learners/node/learner_model.h"
#include "net/control/fleet_member.h"
#include "tests/nn/loaded_policy.h"

namespace troop {
namespace {

using testing::HasSubstr;

// The bytes of a checkpoint's weights.
Buffer WeightsOf(Storage* run, const std::string& path) {
  auto bytes = run->Read(path + "/weights.safetensors", 1 << 24);
  EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
  return bytes.ok() ? *bytes : Buffer();
}

// A learner's settings for the network of a case.
TrainingConfig ConfigOf(const ModelSetup& setup) {
  TrainingConfig config;
  config.learner.algorithm = setup.algorithm;
  config.network = setup.network;
  config.frame_stack = setup.frame_stack;
  config.observation_clip = setup.observation_clip;
  config.learner.critic = setup.critic;
  config.learner.atoms = setup.atoms;
  config.learner.v_min = setup.v_min;
  config.learner.v_max = setup.v_max;
  return config;
}

class CheckpointPolicyTest : public testing::TestWithParam<PolicyCase> {
 protected:
  // The learner's own set-up and job, with the bench's weights in the algorithm.
  std::string WriteByLearner(const PolicyBench& bench) {
    const PolicyCase& c = GetParam();
    const TrainingConfig config = ConfigOf(c.setup);
    const FleetMember member{nullptr, {}};
    auto model = LearnerModel::Make(config, c.env, 0);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    if (!model.ok()) return "";
    model->algorithm->external_optimizer()->ReplaceWeights(1, bench.value());
    const auto source = MakeBatchSource({.config = &config, .env = &c.env, .member = &member});
    InlineExecutor executor;
    CheckpointWriter writer({.config = &config,
                             .executor = &executor,
                             .run = &run_,
                             .module = model->whole.get(),
                             .policy = model->policy,
                             .algorithm = model->algorithm.get(),
                             .source = source.get()});
    writer.Start(false, 0);
    const auto written = writer.Poll();
    EXPECT_TRUE(written && written->path.ok());
    return written && written->path.ok() ? *written->path : "";
  }

  MemoryStorage run_;
};

TEST_P(CheckpointPolicyTest, LibraryLoadsWeightsOfNewestCheckpoint) {
  const PolicyCase& c = GetParam();
  const PolicyBench bench(c.setup, c.env);
  const std::string path = WriteByLearner(bench);
  ASSERT_FALSE(path.empty());
  ExpectEqualsModule(c, bench, WeightsOf(&run_, path));
  EXPECT_TRUE(ReadCheckpoint(&run_, path).ok());
}

TEST_P(CheckpointPolicyTest, LibraryLoadsWeightsOfBestCheckpoint) {
  const PolicyCase& c = GetParam();
  const PolicyBench bench(c.setup, c.env);
  BestCheckpointKeeper keeper({.run = &run_,
                               .module = std::move(*MakeNetwork(c.setup, c.env)),
                               .policy = *EncodedPolicyOf(c.setup, c.env)});
  const auto kept = keeper.Offer(
      {.weights_version = WeightsVersion(1, 5), .episodes = 1, .return_mean = 3}, bench.value());
  ASSERT_TRUE(kept.ok() && *kept);
  ExpectEqualsModule(c, bench, WeightsOf(&run_, kBestFolder));
}

INSTANTIATE_TEST_SUITE_P(Policies, CheckpointPolicyTest, testing::ValuesIn(PolicyCases()),
                         [](const auto& info) { return info.param.name; });

// Checkpoints of earlier versions have no description.
TEST(OldCheckpointPolicyTest, TroopReadsThemAndTheLibraryNamesTheRemedy) {
  const PolicyCase c = PolicyCases().front();
  const PolicyBench bench(c.setup, c.env);
  MemoryStorage run;
  TensorFile state;
  state.tensors["value"] = ConstTensor(Buffer::Copy(std::as_bytes(bench.value())),
                                       {DType::kF32, {std::int64_t(bench.value().size())}});
  const auto path = WriteCheckpoint(&run, bench.network(), {.updates = 3, .state = state}, 1);
  ASSERT_TRUE(path.ok()) << path.status().ToString();
  EXPECT_EQ(ReadCheckpoint(&run, *path)->updates, 3u);
  const LoadedPolicy loaded(WeightsOf(&run, *path));
  EXPECT_EQ(loaded.code(), TROOP_POLICY_DATA_LOSS);
  EXPECT_THAT(loaded.message(), HasSubstr("troop export"));
}

TEST(TextCheckpointPolicyTest, TextModelsHaveNoDescription) {
  ModelSetup setup;
  for (const AlgorithmKind kind : {AlgorithmKind::kClassifier, AlgorithmKind::kMaskedLm}) {
    setup.algorithm = kind;
    const auto policy = EncodedPolicyOf(setup, DiscreteEnv({DType::kF32, {4}}, 2));
    ASSERT_TRUE(policy.ok()) << policy.status().ToString();
    EXPECT_EQ(*policy, "");
  }
}

}  // namespace
}  // namespace troop
