// Runs with Python environments, in separate processes.

#include "tests/core/python.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

class PythonEnvironmentTest : public SystemTest {
 protected:
  void SetUp() override { TROOP_SKIP_WITHOUT_PYTHON(); }
  // Trains on tests/envs/faulty_env.py: action 6 has the highest reward, 10 times as much per step.
  std::unique_ptr<Troop> TrainCounter(std::vector<std::string> more) const {
    more.insert(more.begin(), {"env.id=python:faulty_env:Counter", "run.total_steps=3001",
                               std::string("env.python=") + getenv("TROOP_TEST_PYTHON"),
                               "env.options.pids=" + folder() + "/pids"});
    return Start(TrainWords(more), {"PYTHONPATH=" TROOP_SOURCE_DIR "/tests/envs"});
  }
  void ExpectNoneLeft() const {
    std::istringstream text(FileText(folder() + "/pids"));
    for (pid_t pid = 0; text >> pid;) {
      EXPECT_TRUE(Await([&] { return CommandLine(pid).empty(); })) << pid;
    }
  }
};

TEST_F(PythonEnvironmentTest, SerialRunLearnsAndLeavesNoProcess) {
  const auto troop =
      TrainCounter({"fleet.mode=serial", "learner.gamma=0", "evaluator.final_episodes=20"});
  ExpectDone(troop.get(), 3001);
  // At random 166 (five steps on average, of 30 for the actions), with the best action 316.
  const double mean = Json(run() + "/result.json").Find("final_return_mean")->number;
  EXPECT_GT(mean, 210) << troop->output();
  ExpectNoneLeft();
  const std::string png = folder() + "/play.png";
  const auto play =
      Start({"play", run(), "--png", png}, {"PYTHONPATH=" TROOP_SOURCE_DIR "/tests/envs"});
  ASSERT_EQ(play->Wait(), 0) << play->output();
  EXPECT_TRUE(FileText(png).starts_with("\x89PNG"));
  ExpectNoneLeft();
}

TEST_F(PythonEnvironmentTest, SurvivesCrash) {
  const auto troop = TrainCounter(
      {"fleet.actors=1", "env.options.fault=segfault", "env.options.once=" + folder() + "/once"});
  ExpectDone(troop.get(), 3001);
  EXPECT_TRUE(FileHas(run() + "/logs/actor-0.log", "signal 11") ||
              FileHas(run() + "/logs/evaluator-0.log", "signal 11"));
  EXPECT_FALSE(FileHas(run() + "/logs/launcher.log", "restart 1"));
  ExpectNoneLeft();
}

TEST_F(PythonEnvironmentTest, ToleratesSlowStart) {
  const auto troop = TrainCounter({"fleet.actors=1", "env.options.fault=doze", "env.options.at=-1",
                                   "fleet.stall_timeout_s=1.5"});
  ExpectDone(troop.get(), 3001);
  EXPECT_FALSE(FileHas(run() + "/logs/launcher.log", "restart 1"))
      << FileText(run() + "/logs/launcher.log");
  ExpectNoneLeft();
}

// Without a bound in its space, an action is within env.action_bound. A random one costs 26.7 per
// episode: 8 times E[x²] + E[y²] = 3 + 1/3.
TEST_F(PythonEnvironmentTest, UnboundedActionsNeedAndKeepBound) {
  const std::vector<std::string> env{"env.id=python:unbounded_env:Copy", "env.options.bound=3",
                                     std::string("env.python=") + getenv("TROOP_TEST_PYTHON")};
  const std::vector<std::string> path{"PYTHONPATH=" TROOP_SOURCE_DIR "/tests/envs"};
  std::vector<std::string> words = TrainWords(env);
  words.insert(words.end(), {"learner.algorithm=sac", "fleet.mode=serial", "learner.gamma=0",
                             "run.total_steps=3000", "learner.target_update_every_updates=1",
                             "learner.target_tau=0.005", "replay.samples_per_insert=32",
                             "evaluator.final_episodes=20"});
  const auto refused = Start(words, path);
  EXPECT_NE(refused->Wait(), 0);
  EXPECT_NE(refused->output().find("has infinite bounds, which cannot be explored; give finite "
                                   "ones: env.action_bound, or a wrapper"),
            std::string::npos)
      << refused->output();
  words.insert(words.end(), {"env.action_bound=3", "name=bounded"});
  const auto troop = Start(words, path);
  ExpectDone(troop.get(), 3000, "bounded");
  const JsonValue result = Json(run("bounded") + "/result.json");
  EXPECT_GT(result.Find("final_return_mean")->number, -8) << troop->output();
}

// Regression: the limit under test was added to Gymnasium's own, which a run refuses.
TEST_F(PythonEnvironmentTest, EnvironmentWithOwnStepLimitPassesCheck) {
  const auto check =
      Start({"env", "check", "gymnasium:CartPole-v1", "--quick", "env.options.max_episode_steps=40",
             std::string("env.python=") + getenv("TROOP_TEST_PYTHON")});
  ASSERT_EQ(check->Wait(), 0) << check->output();
  EXPECT_NE(check->output().find("at most 40 steps"), std::string::npos) << check->output();
}

}  // namespace
}  // namespace troop
