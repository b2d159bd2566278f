// Runs whose evaluation environment differs from that of the actors.

#include <gmock/gmock.h>

#include "tests/system/troop_process.h"

namespace troop {
namespace {

using testing::HasSubstr;

class EvaluationEnvSystemTest : public SystemTest {
 protected:
  // A shop that earns a lot in training, and nothing in evaluation: there it only pays for stock.
  std::vector<std::string> Shop(const std::vector<std::string>& more) const {
    std::vector<std::string> keys{"env.id=Inventory-v0",
                                  "env.plugin=" TROOP_PLUGIN_FOLDER "/inventory.so",
                                  "env.options.profit=100",
                                  "evaluator.env.options.profit=0",
                                  "evaluator.env.max_episode_steps=13",
                                  "run.total_steps=3001"};
    keys.insert(keys.end(), more.begin(), more.end());
    return TrainWords(keys);
  }
  // Every evaluation of the run has 13 steps and the return of a shop without profit.
  void ExpectEvaluatedWithoutProfit() const {
    std::istringstream lines(FileText(run() + "/evaluations.jsonl"));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const Result<JsonValue> evaluation = ParseJson(line);
      ASSERT_TRUE(evaluation.ok()) << line;
      EXPECT_EQ(evaluation->Find("length_mean")->number, 13) << line;
      EXPECT_LE(evaluation->Find("return_max")->number, 0) << line;
    }
    EXPECT_GT(count, 0);
    // At random 2 to 4 are sold a week, of 52.
    EXPECT_GT(Metric("episode_return_mean"), 1000);
  }
};

TEST_F(EvaluationEnvSystemTest, EvaluatorAndEvalUseItAndActorsDoNot) {
  ExpectDone(Start(Shop({})).get(), 3001);
  ExpectEvaluatedWithoutProfit();
  const auto eval = Start({"eval", run(), "--episodes", "4", "--json"});
  ASSERT_EQ(eval->Wait(), 0) << eval->output();
  const Result<JsonValue> report = ParseJson(eval->output());
  ASSERT_TRUE(report.ok()) << eval->output();
  EXPECT_LE(report->Find("return_max")->number, 0) << eval->output();
}

TEST_F(EvaluationEnvSystemTest, SerialRunUsesItToo) {
  ExpectDone(Start(Shop({"fleet.mode=serial"})).get(), 3001);
  ExpectEvaluatedWithoutProfit();
}

TEST_F(EvaluationEnvSystemTest, OtherObservationsAreRefusedInOneLineBeforeTraining) {
  const auto troop = Train({"evaluator.env.id=Acrobot-v1"});
  EXPECT_EQ(troop->Wait(), 2);
  EXPECT_EQ(troop->output(),
            "troop: evaluator.env: Acrobot-v1 has observations f32[6] with scale 1 and 3 actions, "
            "but CartPole-v1 of the actors has observations f32[4] with scale 1 and 2 actions; "
            "both must be equal, so change evaluator.env\n");
  EXPECT_FALSE(std::filesystem::exists(run()));
}

TEST_F(EvaluationEnvSystemTest, OptionThatEnvironmentLacksIsRefused) {
  const auto troop = Train({"evaluator.env.options.gravity=1"});
  EXPECT_EQ(troop->Wait(), 2);
  EXPECT_THAT(troop->output(), HasSubstr("evaluator.env: CartPole-v1 is built in and has no "
                                         "options"));
  EXPECT_FALSE(std::filesystem::exists(run()));
}

}  // namespace
}  // namespace troop
