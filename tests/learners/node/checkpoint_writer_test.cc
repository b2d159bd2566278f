#include "learners/node/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/base/executor.h"
#include "learners/checkpoint.h"
#include "nn/models/model.h"
#include "tests/learners/dqn_testing.h"

namespace troop {
namespace {

// A writer for a small DQN.
class CheckpointWriterTest : public testing::Test {
 protected:
  CheckpointWriterTest()
      : algorithm_(Make(config_)),
        module_(std::move(*MakeNetwork(ModelSetupOf(config_), env_))),
        source_(MakeBatchSource({.config = &config_, .env = &env_, .member = &member_})),
        writer_({.config = &config_,
                 .executor = &executor_,
                 .run = run_.get(),
                 .module = module_.get(),
                 .algorithm = algorithm_.get(),
                 .source = source_.get()}) {}

  static TrainingConfig ConfigWithText() {
    TrainingConfig config = SmallConfig();
    config.config_toml = "seed = 3\n";
    return config;
  }

  const TrainingConfig config_ = ConfigWithText();
  const EnvSpec env_ = Env();
  const FleetMember member_{nullptr, {}};
  const std::unique_ptr<Storage> run_ = MakeMemoryStorage();
  InlineExecutor executor_;
  const std::unique_ptr<Algorithm> algorithm_;
  const std::unique_ptr<Module> module_;
  const std::unique_ptr<BatchSource> source_;
  CheckpointWriter writer_;
};

TEST_F(CheckpointWriterTest, WritesStateWithSteps) {
  EXPECT_FALSE(writer_.Poll().has_value());
  writer_.Start(true, 123);
  EXPECT_TRUE(writer_.busy());
  const auto written = writer_.Poll();
  ASSERT_TRUE(written.has_value());
  EXPECT_FALSE(writer_.busy());
  EXPECT_TRUE(written->final);
  ASSERT_TRUE(written->path.ok()) << written->path.status().ToString();
  const auto read = ReadCheckpoint(run_.get(), *written->path);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->steps, 123);
  EXPECT_EQ(read->config_toml, config_.config_toml);
  EXPECT_EQ(read->updates, written->updates);
  EXPECT_FALSE(writer_.Poll().has_value());
}

TEST_F(CheckpointWriterTest, WritesNoNonFiniteWeight) {
  std::vector<float> value(algorithm_->value().begin(), algorithm_->value().end());
  value[0] = std::numeric_limits<float>::infinity();
  algorithm_->external_optimizer()->ReplaceWeights(1, value);
  writer_.Start(false, 0);
  const auto written = writer_.Poll();
  ASSERT_TRUE(written.has_value());
  EXPECT_EQ(written->weights.code(), Code::kDataLoss);
  EXPECT_FALSE(NewestCheckpoint(run_.get()).ok());
}

}  // namespace
}  // namespace troop
