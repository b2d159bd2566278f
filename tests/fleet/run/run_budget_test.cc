#include "fleet/run/run_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "fleet/run/run_directory.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

using testing::ElementsAre;

class RunBudgetTest : public testing::Test {
 protected:
  RunBudgetTest() {
    config_.log.dir = temp_.path();
    config_.name = "run";
    config_.run.total_steps = 2000;
  }
  void End(const std::string& result) {
    std::filesystem::create_directories(Path());
    std::ofstream(Path() + "/config.toml") << ToToml(config_);
    std::ofstream(Path() + "/result.json") << result;
  }
  std::string Path() const { return temp_.path() + "/run"; }
  bool Spent(const std::vector<std::string>& overrides = {}) {
    const Result<Config> config = ReadRunConfig(Path(), overrides);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    const Result<bool> spent = IsSpent(Path(), *config);
    EXPECT_TRUE(spent.ok()) << spent.status().ToString();
    return spent.ok() && *spent;
  }

  TempFolder temp_;
  Config config_;
};

TEST_F(RunBudgetTest, FinishedRunIsSpentUntilBudgetGrows) {
  End(R"({"status": "ok", "steps": 2000, "updates": 250})");
  EXPECT_TRUE(Spent());
  EXPECT_TRUE(Spent({"run.total_steps=1000"}));
  EXPECT_TRUE(Spent({"optimizer.learning_rate=1e-4"}));
  EXPECT_TRUE(Spent({"run.max_updates=250", "run.total_steps=3000"}));
  EXPECT_FALSE(Spent({"run.total_steps=2001"}));
  EXPECT_FALSE(Spent({"run.max_updates=251", "run.total_steps=3000"}));
}

TEST_F(RunBudgetTest, SolvedRunContinuesToHigherReturn) {
  config_.evaluator.stop_at_return = 100;
  End(R"({"status": "ok", "steps": 700, "updates": 90})");
  EXPECT_TRUE(Spent());
  EXPECT_FALSE(Spent({"evaluator.stop_at_return=200"}));
}

TEST_F(RunBudgetTest, InterruptedRunIsNotSpent) {
  End(R"({"status": "interrupted", "steps": 2000, "updates": 250})");
  EXPECT_FALSE(Spent());
}

TEST_F(RunBudgetTest, ReplacesBudgetOnlyByLargerOne) {
  Config was = config_, asked = config_;
  EXPECT_THAT(LargerBudget(asked, was), ElementsAre());
  asked.run.total_steps = 1000;
  EXPECT_THAT(LargerBudget(asked, was), ElementsAre());
  asked.run.total_steps = 5000;
  was.run.max_updates = 10;
  EXPECT_THAT(LargerBudget(asked, was), ElementsAre("run.total_steps=5000", "run.max_updates=0"));
}

// The folder of a supervised run has max_updates = 40, the updates of its two epochs.
TEST_F(RunBudgetTest, SupervisedBudgetIsEpochs) {
  Config was = config_, asked = config_;
  was.learner.algorithm = asked.learner.algorithm = AlgorithmKind::kClassifier;
  was.run.epochs = asked.run.epochs = 2;
  was.run.max_updates = 40;
  EXPECT_THAT(LargerBudget(asked, was), ElementsAre());
  asked.run.epochs = 2.5;
  EXPECT_THAT(LargerBudget(asked, was), ElementsAre("run.epochs=2.5", "run.max_updates=0"));
}

// `resume RUN run.epochs=3` stayed at the updates of the epochs before.
TEST_F(RunBudgetTest, ChangedEpochsResetMaxUpdates) {
  config_.run.max_updates = 40;
  End("{}");
  const Result<Config> same = ReadRunConfig(Path(), {}),
                       more = ReadRunConfig(Path(), std::vector<std::string>{"run.epochs=5"});
  ASSERT_TRUE(same.ok() && more.ok());
  EXPECT_EQ(same->run.max_updates, 40);
  EXPECT_EQ(more->run.max_updates, 0);
}

}  // namespace
}  // namespace troop
