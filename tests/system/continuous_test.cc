// Continuous actions, from environments of all kinds to what a fleet has learned.

#include "tests/core/python.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

class ContinuousTest : public SystemTest {
 protected:
  static std::vector<std::string> Dpg(std::vector<std::string> more) {
    const std::vector<std::string> keys{"learner.algorithm=dpg",
                                        "learner.loss=mse",
                                        "learner.target_update_every_updates=50",
                                        "actor.warmup_steps=500",
                                        "replay.samples_per_insert=64",
                                        "evaluator.final_episodes=40",
                                        "fleet.actors=1"};
    more.insert(more.begin(), keys.begin(), keys.end());
    return more;
  }
  double FinalReturn() const {
    return Json(run() + "/result.json").Find("final_return_mean")->number;
  }
};

// With the weights it begins with -23 and less; a good pump's operator gets about -2.
TEST_F(ContinuousTest, LearnsContinuousActionsOfPlugin) {
  const auto troop =
      Train(Dpg({"env.id=TwoTanks-v0", "env.plugin=" TROOP_PLUGIN_FOLDER "/two_tanks.so",
                 "learner.critic=categorical", "learner.v_min=-10", "learner.v_max=0",
                 "learner.gamma=0.9", "run.total_steps=6001"}));
  ExpectDone(troop.get(), 6001);
  EXPECT_GT(FinalReturn(), -12) << troop->output();
}

TEST_F(ContinuousTest, LearnsGymnasiumPendulum) {
  TROOP_SKIP_WITHOUT_PYTHON();
  const auto troop = Train(
      Dpg({"env.id=gymnasium:Pendulum-v1", "run.total_steps=2001", "evaluator.final_episodes=4",
           std::string("env.python=") + getenv("TROOP_TEST_PYTHON")}));
  ExpectDone(troop.get(), 2001);
  EXPECT_GT(Json(run() + "/result.json").Find("updates")->number, 500);
  EXPECT_LT(FinalReturn(), 0);
  EXPECT_GT(FinalReturn(), -200 * 16.3);  // 200 times the largest cost
}

TEST_F(ContinuousTest, RejectsActionKindUnfitForAlgorithm) {
  const auto numbers = Train({"env.id=Pendulum-v1"});
  EXPECT_EQ(numbers->Wait(), 2);
  EXPECT_EQ(
      numbers->output(),
      "troop: command line: env.id=Pendulum-v1: Pendulum-v1 has continuous actions, "
      "learner.algorithm = \"dqn\" needs "
      "discrete ones; set learner.algorithm = \"dpg\", \"td3\", \"sac\", \"vtrace\" or \"ppo\", or "
      "choose another environment\n");
  const auto choices = Train({"learner.algorithm=dpg"});
  EXPECT_EQ(choices->Wait(), 2);
  EXPECT_EQ(
      choices->output(),
      "troop: " + folder() +
          "/config.toml:3: env.id: CartPole-v1 has discrete actions, learner.algorithm = "
          "\"dpg\" needs "
          "continuous ones; set learner.algorithm = \"dqn\", \"r2d2\", \"pqn\", \"vtrace\" or "
          "\"ppo\", or choose another environment\n");
}

}  // namespace
}  // namespace troop
