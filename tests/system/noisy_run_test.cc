// Fleets with noisy networks: noise replaces ε, also in Gorila, on inference servers and through
// the deaths of actors and learners.

#include <cmath>

#include "tests/system/troop_process.h"

namespace troop {
namespace {

constexpr int kNoisySteps = 40001;

class NoisyRunTest : public SystemTest {
 protected:
  static std::vector<std::string> Words(const std::string& name,
                                        const std::vector<std::string>& more) {
    std::vector<std::string> words{"name=" + name,
                                   "network.noisy=true",
                                   "network.layers=[{type=\"linear\", units=16}]",
                                   "network.dueling_units=16",
                                   "learner.critic=categorical",
                                   "learner.v_min=0",
                                   "learner.v_max=100",
                                   "run.total_steps=" + std::to_string(kNoisySteps)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Kills one process of each role after some steps, and expects a complete run.
  void ExpectSurvivesDeaths(const std::string& name, const std::vector<std::string>& more) {
    const auto troop = Train(Words(name, more));
    ASSERT_TRUE(AwaitSteps(3000, name)) << troop->output();
    for (const char* const role : {"learner", "actor"}) {
      const std::vector<pid_t> processes = RoleProcesses(Coordinator(name), role);
      ASSERT_FALSE(processes.empty());
      SendSignal(processes[0], SIGKILL);
    }
    ExpectDone(troop.get(), kNoisySteps, name);
    const JsonValue result = Json(run(name) + "/result.json");
    EXPECT_GT(result.Find("updates")->number, 100);
    EXPECT_TRUE(std::isfinite(result.Find("final_return_mean")->number));
    EXPECT_EQ(Metric("actor/epsilon", name), 0);
  }
};

TEST_F(NoisyRunTest, SurvivesDeathsWithAllReduceAndInGorila) {
  ExpectSurvivesDeaths("allreduce", {"fleet.learners=2", "learner.sync=allreduce"});
  ExpectSurvivesDeaths(
      "gorila", {"fleet.learners=2", "fleet.actors=2", "replay.scope=local", "replay.shards=2",
                 "learner.sync=paramserver", "paramserver.shards=2", "paramserver.mode=async"});
}

TEST_F(NoisyRunTest, InferenceServersDrawNoise) {
  const auto troop = Train(Words("server", {"actor.inference=server"}));
  ExpectDone(troop.get(), kNoisySteps, "server");
  EXPECT_EQ(Metric("actor/epsilon", "server"), 0);
}

}  // namespace
}  // namespace troop
