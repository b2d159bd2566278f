// Runs of an environment with an action mask: a full column of Connect Four is a fault.

#include <gmock/gmock.h>

#include <cmath>

#include "tests/system/troop_process.h"

namespace troop {
namespace {

using testing::HasSubstr;

class ActionMaskRunTest : public SystemTest {
 protected:
  static std::vector<std::string> Words(const std::string& algorithm, int steps) {
    std::vector<std::string> words{
        "name=" + algorithm,
        "learner.algorithm=" + algorithm,
        "env.id=ConnectFour-v0",
        "env.plugin=" TROOP_PLUGIN_FOLDER "/connect_four.so",
        "network.layers=[{type=\"conv2d\", filters=16, kernel=4}, {type=\"linear\", units=32}]",
        "learner.batch_size=8",
        "run.total_steps=" + std::to_string(steps)};
    if (algorithm == "dqn") return words;
    const std::vector<std::string> unrolls{
        "actor.unroll_length=16",     "actor.insert_batch_size=8",   "replay.sampler=fifo",
        "replay.max_times_sampled=1", "replay.samples_per_insert=1", "replay.min_items=16",
        "replay.capacity_items=512"};
    words.insert(words.end(), unrolls.begin(), unrolls.end());
    return words;
  }
};

// Random exploration, sampled policies and evaluation choose allowed actions alone, through deaths;
// learners find no other action in the batches.
TEST_F(ActionMaskRunTest, NeverPlaysForbiddenAction) {
  for (const auto& [algorithm, steps] :
       {std::pair<std::string, int>("dqn", 10001), {"pqn", 100001}, {"ppo", 100001}}) {
    const auto troop = Train(Words(algorithm, steps));
    ASSERT_TRUE(AwaitSteps(2000, algorithm)) << troop->output();
    for (const char* const role : {"learner", "actor"}) {
      const std::vector<pid_t> processes = RoleProcesses(Coordinator(algorithm), role);
      ASSERT_FALSE(processes.empty());
      SendSignal(processes[0], SIGKILL);
    }
    ExpectDone(troop.get(), steps, algorithm);
    EXPECT_EQ(Metric("actor/env_faults", algorithm), 0);
    const JsonValue result = Json(run(algorithm) + "/result.json");
    EXPECT_GT(result.Find("updates")->number, 100);
    EXPECT_TRUE(std::isfinite(result.Find("final_return_mean")->number));
    EXPECT_TRUE(std::isfinite(Metric("learner/loss", algorithm)));
  }
}

// An export would lose the mask.
TEST_F(ActionMaskRunTest, ExportIsRefusedInOneLine) {
  ExpectDone(Train(Words("dqn", 2001)).get(), 2001, "dqn");
  const auto exported = Start({"export", run("dqn"), "--format", "onnx", "--out", folder() + "/x"});
  EXPECT_EQ(exported->Wait(), 1) << exported->output();
  EXPECT_THAT(exported->output(), HasSubstr("action_mask [7] (action mask)"));
  EXPECT_THAT(exported->output(), HasSubstr("evaluate it with troop eval"));
}

}  // namespace
}  // namespace troop
