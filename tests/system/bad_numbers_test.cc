// Non-finite values in a run of real processes: NaN in a reward, an observation, a gradient or a
// weight, once or permanently.

#include "core/storage/storage.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/checkpoint.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

class BadNumbersTest : public SystemTest {
 protected:
  static constexpr int kSteps = 8001;

  std::unique_ptr<Troop> TrainWith(const std::string& failpoint,
                                   std::vector<std::string> overrides = {}) const {
    overrides.push_back("evaluator.enabled=false");
    return Start(TrainWords(overrides), {"TROOP_FAILPOINT=" + failpoint});
  }
  // Checks all existing checkpoints.
  void ExpectFiniteCheckpoints() const {
    const auto storage = MakeDiskStorage(run());
    const auto newest = NewestCheckpoint(storage->get());
    ASSERT_TRUE(newest.ok()) << newest.status().ToString();
    for (const auto& entry : std::filesystem::directory_iterator(run() + "/checkpoints")) {
      const auto read =
          ReadCheckpoint(storage->get(), "checkpoints/" + entry.path().filename().string());
      ASSERT_TRUE(read.ok()) << read.status().ToString();
      for (const auto& [name, values] : read->state.tensors) {
        EXPECT_TRUE(AllFinite(values.as<float>())) << entry.path() << " " << name;
      }
    }
  }
  // Where nothing bad came in, no batch is refused and no role is started again.
  void ExpectLearnerUnharmed() const {
    EXPECT_EQ(Metric("learner/skipped_updates"), 0);
    EXPECT_GT(Metric("replay/inserts"), 0);
    EXPECT_EQ(Metric("replay/rejected_requests"), 0);
    EXPECT_EQ(Metric("replay/rejected_priorities"), 0);
    EXPECT_EQ(LauncherLog().find("; restart "), std::string::npos) << LauncherLog();
    ExpectFiniteCheckpoints();
  }
};

class BadActorNumberTest : public BadNumbersTest,
                           public testing::WithParamInterface<const char*> {};

TEST_P(BadActorNumberTest, IsDroppedCountedAndLoggedWithOrigin) {
  const std::string what = GetParam(), hit = folder() + "/hit";
  const auto troop = TrainWith("actor." + what + ":200:nan:" + hit);
  ExpectDone(troop.get(), kSteps);
  EXPECT_EQ(Metric("actor/nonfinite_values"), 1);
  const std::string log = ActorLogs();
  const auto origin = log.find("CartPole-v1: " + what);
  ASSERT_NE(origin, log.npos) << log;
  for (const char* part : {"is nan at step ", "of episode ", "of environment ", "(seed "}) {
    EXPECT_NE(log.find(part, origin), log.npos) << log;
  }
  ExpectLearnerUnharmed();
}

INSTANTIATE_TEST_SUITE_P(Numbers, BadActorNumberTest, testing::Values("reward", "observation"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(BadNumbersTest, NonFiniteRewardCostsOneEvaluationEpisode) {
  const auto troop = Start(TrainWords(), {"TROOP_FAILPOINT=evaluator.reward:5"});
  ExpectDone(troop.get(), kSteps);
  EXPECT_EQ(Metric("evaluator/nonfinite_values"), 1);
  EXPECT_NE(RoleLog("evaluator-0").find("CartPole-v1: reward is nan at step "), std::string::npos)
      << RoleLog("evaluator-0");
  EXPECT_NE(troop->output().find("final score: "), std::string::npos) << troop->output();
  EXPECT_EQ(troop->output().find("nan"), std::string::npos) << troop->output();
}

TEST_F(BadNumbersTest, SkipsAndCountsNonFiniteGradient) {
  const auto troop = TrainWith("learner.gradient:50");
  ExpectDone(troop.get(), kSteps);
  EXPECT_EQ(Metric("learner/skipped_updates"), 1);
  EXPECT_EQ(Metric("learner/rollbacks"), 0);
  EXPECT_NE(RoleLog("learner-0").find("the gradient of layers.0.weight[0] is nan"),
            std::string::npos)
      << RoleLog("learner-0");
  ExpectFiniteCheckpoints();
}

TEST_F(BadNumbersTest, RollsBackNonFiniteWeightAndFinishes) {
  const auto troop = TrainWith("learner.weight:300");
  ExpectDone(troop.get(), kSteps);
  EXPECT_EQ(Metric("learner/rollbacks"), 1);
  EXPECT_EQ(Metric("actor/nonfinite_weights"), 0);
  const std::string log = RoleLog("learner-0");
  const auto back = log.find("rolled back to ");
  ASSERT_NE(back, log.npos) << log;
  EXPECT_NE(log.find("the weight layers.0.weight[0] is nan", back), log.npos) << log;
  EXPECT_EQ(LauncherLog().find("; restart "), std::string::npos) << LauncherLog();
  ExpectFiniteCheckpoints();
}

// Too few in a row for a roll-back: the run ended with status "ok", and the model had not learned.
TEST_F(BadNumbersTest, FailsWhenMostUpdatesAreSkipped) {
  const auto troop = TrainWith("learner.gradient:5+", {"run.max_updates=48"});
  EXPECT_EQ(troop->Wait(), 1) << troop->output();
  for (const char* part : {"updates were skipped and 4 made", "lower optimizer.learning_rate"}) {
    EXPECT_NE(troop->output().find(part), std::string::npos) << part << "\n" << troop->output();
  }
  EXPECT_NE(Json(run() + "/result.json").String("status")->find("were skipped"), std::string::npos);
}

class BadForEverTest : public BadNumbersTest, public testing::WithParamInterface<const char*> {};

// The exit code of a run that failed, and on the standard error why: docs/reference/commands.md.
TEST_P(BadForEverTest, FailsRunWithReason) {
  const std::string place = GetParam();
  const auto troop = TrainWith(place + ":30+", {"fleet.restarts_max=2"});
  ASSERT_EQ(troop->Wait(), 1) << troop->output();
  const bool actor = place.starts_with("actor.");
  std::vector<std::string> parts;
  if (actor) {
    parts = {
        "actor-", "gave up", "CartPole-v1: ", "is nan at step ", "(seed ", "fix the environment"};
  } else {
    parts = {"learner-0 gave up", "after 3 rollbacks", "layers.0.weight[0] is nan",
             "lower optimizer.learning_rate", "logs/learner-0.log"};
  }
  parts.push_back("troop: the run failed: ");
  for (const std::string& part : parts) {
    EXPECT_NE(troop->output().find(part), std::string::npos) << part << "\n" << troop->output();
  }
  EXPECT_NE(*Json(run() + "/result.json").String("status"), "ok");
  // Neither is restarted: nothing would change.
  EXPECT_EQ(LauncherLog().find("; restart "), std::string::npos) << LauncherLog();
}

INSTANTIATE_TEST_SUITE_P(Places, BadForEverTest,
                         testing::Values("actor.reward", "actor.observation", "learner.gradient",
                                         "learner.weight"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace troop
