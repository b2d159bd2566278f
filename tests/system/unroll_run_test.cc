// Fleets whose items are unrolls: nothing is learned from twice or lost unseen, through the deaths
// of actors and learners.

#include <cmath>

#include "tests/system/troop_process.h"

namespace troop {
namespace {

constexpr int kUnrolledSteps = 60001, kCapacity = 512;

class UnrollRunTest : public SystemTest {
 protected:
  static std::vector<std::string> Words(const std::string& algorithm,
                                        const std::vector<std::string>& more) {
    std::vector<std::string> words{
        "learner.algorithm=" + algorithm,
        "name=" + algorithm,
        "actor.unroll_length=16",
        "actor.insert_batch_size=8",
        "network.layers=[{type=\"linear\", units=32, activation=\"none\"}, {type=\"layer_norm\"}]",
        "replay.sampler=fifo",
        "replay.max_times_sampled=1",
        "replay.samples_per_insert=1",
        "replay.min_items=16",
        "replay.capacity_items=" + std::to_string(kCapacity),
        "learner.batch_size=4",
        "run.total_steps=" + std::to_string(kUnrolledSteps)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Rollouts of 16 steps by each environment, three passes of two minibatches.
  static std::vector<std::string> SynchronousWords(const std::string& algorithm,
                                                   const std::vector<std::string>& more) {
    std::vector<std::string> words{
        "learner.algorithm=" + algorithm,
        "learner.synchronous=true",
        "learner.rollout_epochs=3",
        "learner.rollout_minibatches=2",
        "actor.unroll_length=16",
        "actor.insert_batch_size=8",
        "actor.weight_sync_steps=100",
        "actor.lease_steps=1000",
        "network.layers=[{type=\"linear\", units=32, activation=\"none\"}, {type=\"layer_norm\"}]",
        "replay.sampler=fifo",
        "replay.max_times_sampled=1",
        "replay.samples_per_insert=0",
        "replay.min_items=1",
        "replay.capacity_items=" + std::to_string(kCapacity),
        "run.total_steps=" + std::to_string(kUnrolledSteps)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  double Updates(const std::string& name) const {
    return Json(run(name) + "/result.json").Find("updates")->number;
  }
};

// Each unroll was trained on once, or waits; the queue has room, so that none was evicted before.
TEST_F(UnrollRunTest, CountsOfUnrollsAddUp) {
  // vtrace replays 2 of the 4 unrolls of a batch, which do not come from the queue.
  const std::string replayed = "learner.replayed_fraction=0.5";
  for (const std::string name : {"pqn", "ppo", "vtrace"}) {
    const bool replays = name == "vtrace";
    const auto troop = Train(Words(name, {replays ? replayed : "learner.batch_size=4"}));
    ExpectDone(troop.get(), kUnrolledSteps, name);
    const double inserts = Metric("replay/inserts", name), samples = Metric("replay/samples", name);
    EXPECT_GE(inserts, kUnrolledSteps / 16);
    // Sampling requires 16 items, so fewer are left at the end.
    const double left = Metric("replay/fill", name) * kCapacity;
    EXPECT_LT(left, 16);
    EXPECT_EQ(inserts, samples + left);
    EXPECT_EQ(samples, Metric("replay/evicted", name));
    EXPECT_EQ(samples, (replays ? 2 : 4) * Updates(name));
    if (name == "pqn") continue;
    // The actors' policies are older than the learner's: asynchronous, and corrected.
    EXPECT_GE(Metric("learner/sample_age", name), 1);
    EXPECT_GT(Metric("learner/approx_kl", name), 0);
    EXPECT_LE(Metric("learner/entropy", name), std::log(2) + 1e-6);
    EXPECT_GT(Metric("learner/entropy", name), 0);
    EXPECT_GT(Metric("learner/value_loss", name), 0);
  }
}

TEST_F(UnrollRunTest, LearnersSurviveDeaths) {
  const std::vector<std::string> allreduce{"learner.sync=allreduce"};
  const std::vector<std::string> shards{"learner.sync=paramserver", "paramserver.shards=2"};
  for (const auto& [algorithm, sync] :
       {std::pair("pqn", allreduce), {"pqn", shards}, {"vtrace", allreduce}, {"ppo", shards}}) {
    std::vector<std::string> words = Words(algorithm, sync);
    const std::string name = algorithm + sync[0].substr(13);
    words.push_back("fleet.learners=2");
    words.push_back("name=" + name);
    const auto troop = Train(words);
    ASSERT_TRUE(AwaitSteps(3000, name)) << troop->output();
    for (const char* const role : {"learner", "actor"}) {
      const std::vector<pid_t> processes = RoleProcesses(Coordinator(name), role);
      ASSERT_FALSE(processes.empty());
      SendSignal(processes[0], SIGKILL);
    }
    ExpectDone(troop.get(), kUnrolledSteps, name);
    const JsonValue result = Json(run(name) + "/result.json");
    EXPECT_GT(result.Find("updates")->number, 100);
    EXPECT_TRUE(std::isfinite(result.Find("final_return_mean")->number));
  }
}

// The run is long enough that the processes die near its beginning on fast machines, too.
TEST_F(UnrollRunTest, ReplayedUnrollsSurviveDeaths) {
  constexpr int kSteps = 5 * kUnrolledSteps;
  const auto troop =
      Train(Words("vtrace", {"learner.replayed_fraction=0.5", "learner.replayed_capacity=200",
                             "run.total_steps=" + std::to_string(kSteps)}));
  ASSERT_TRUE(AwaitSteps(3000, "vtrace")) << troop->output();
  for (const char* const role : {"learner", "actor"}) {
    const std::vector<pid_t> processes = RoleProcesses(Coordinator("vtrace"), role);
    ASSERT_FALSE(processes.empty());
    SendSignal(processes[0], SIGKILL);
  }
  ExpectDone(troop.get(), kSteps, "vtrace");
  // About 9,400 without the death, which costs those since the last checkpoint.
  EXPECT_GT(Updates("vtrace"), 1000);
  // The replayed half is older than the queue alone makes it.
  EXPECT_GT(Metric("learner/sample_age", "vtrace"), 10);
}

// Every step is in one rollout or is dropped; each rollout has the same number of updates.
TEST_F(UnrollRunTest, SynchronousRolloutsAddUp) {
  for (const std::string mode : {"processes", "serial"}) {
    const auto troop = Train(SynchronousWords("ppo", {"name=" + mode, "fleet.mode=" + mode}));
    ExpectDone(troop.get(), kUnrolledSteps, mode);
    const double rollouts = Metric("learner/rollouts", mode);
    // 2 actors x 4 environments x 16 steps. The last rollout is not complete. On busy processors an
    // actor may get the last steps, which another one needs for its share.
    const int late = mode == "serial" ? 0 : 1;
    EXPECT_NEAR(rollouts, std::floor(kUnrolledSteps / 128.0), late);
    EXPECT_EQ(Updates(mode), rollouts * 3 * 2);
    EXPECT_EQ(Metric("replay/inserts", mode), Metric("replay/samples", mode));
    EXPECT_LE(Metric("learner/dropped_unrolls", mode), 128);
    EXPECT_LE(Metric("actor/rollout_refills", mode), late);
    // The newest weights played, before the 6 updates from their rollout.
    EXPECT_LE(Metric("learner/sample_age", mode), 6);
  }
}

// A dead actor's share comes from its successor; that of a stopped one from the others' refills.
TEST_F(UnrollRunTest, SynchronousLearnersSurviveDeaths) {
  for (const std::string algorithm : {"ppo", "pqn", "vtrace"}) {
    std::vector<std::string> words = SynchronousWords(
        algorithm, {"name=" + algorithm, "actor.refill_after_s=0.3", "fleet.backoff_initial_s=1"});
    // The learners of a group have their own queues.
    if (algorithm == "ppo") {
      words.insert(words.end(), {"fleet.learners=2", "fleet.actors=4", "replay.scope=local",
                                 "replay.shards=2", "replay.min_items=2"});
    }
    const auto troop = Train(words);
    ASSERT_TRUE(AwaitSteps(3000, algorithm)) << troop->output();
    for (const char* const role : {"learner", "actor"}) {
      const std::vector<pid_t> processes = RoleProcesses(Coordinator(algorithm), role);
      ASSERT_FALSE(processes.empty());
      SendSignal(processes[0], SIGKILL);
    }
    ExpectDone(troop.get(), kUnrolledSteps, algorithm);
    EXPECT_GT(Updates(algorithm), 100);
    EXPECT_GT(Metric("learner/rollouts", algorithm), 10);
  }
}

// Recurrent states travel with the unrolls, also through deaths.
TEST_F(UnrollRunTest, RecurrentLearnerSurvivesDeaths) {
  const auto troop = Train(Words("ppo", {"env.id=StatelessCartPole-v1",
                                         "network.layers=[{type=\"linear\", units=16}, "
                                         "{type=\"lstm\", units=16}]",
                                         "env.frame_stack=2", "actor.insert_copies=2"}));
  ASSERT_TRUE(AwaitSteps(3000, "ppo")) << troop->output();
  for (const char* const role : {"learner", "actor"}) {
    const std::vector<pid_t> processes = RoleProcesses(Coordinator("ppo"), role);
    ASSERT_FALSE(processes.empty());
    SendSignal(processes[0], SIGKILL);
  }
  ExpectDone(troop.get(), kUnrolledSteps, "ppo");
  EXPECT_GT(Updates("ppo"), 100);
  // A new policy is near the one that acted; wrong states would make them differ.
  EXPECT_LT(Metric("learner/approx_kl", "ppo"), 0.1);
}

// Continuous actions, and a separate network of the value, by two learners.
TEST_F(UnrollRunTest, ContinuousPpoSurvivesDeaths) {
  const auto troop = Train(Words(
      "ppo",
      {"name=box", "env.id=Pendulum-v1", "network.critic_layers=[{type=\"linear\", units=32}]",
       "network.initial_log_std=-0.5", "fleet.learners=2", "learner.sync=allreduce"}));
  ASSERT_TRUE(AwaitSteps(3000, "box")) << troop->output();
  for (const char* const role : {"learner", "actor"}) {
    const std::vector<pid_t> processes = RoleProcesses(Coordinator("box"), role);
    ASSERT_FALSE(processes.empty());
    SendSignal(processes[0], SIGKILL);
  }
  ExpectDone(troop.get(), kUnrolledSteps, "box");
  EXPECT_GT(Updates("box"), 100);
  // Near that of the initial deviation, 0.5 log(2 π e) - 0.5.
  EXPECT_NEAR(Metric("learner/entropy", "box"), 0.92, 0.5);
  EXPECT_GE(Metric("learner/approx_kl", "box"), 0);
  EXPECT_LT(Metric("learner/approx_kl", "box"), 0.1);
}

// Actions of 7,000 combinations, through deaths: at random the return is 6.7 of 10.
TEST_F(UnrollRunTest, SeveralDiscreteComponentsAreLearned) {
  const auto troop = Train(
      Words("ppo", {"name=dials", "env.id=Dials-v0", "env.plugin=" TROOP_PLUGIN_FOLDER "/walk.so",
                    "fleet.learners=2", "learner.sync=allreduce", "learner.gamma=0",
                    "optimizer.learning_rate=3e-3"}));
  ASSERT_TRUE(AwaitSteps(3000, "dials")) << troop->output();
  for (const char* const role : {"learner", "actor"}) {
    const std::vector<pid_t> processes = RoleProcesses(Coordinator("dials"), role);
    ASSERT_FALSE(processes.empty());
    SendSignal(processes[0], SIGKILL);
  }
  ExpectDone(troop.get(), kUnrolledSteps, "dials");
  EXPECT_EQ(Metric("actor/env_faults", "dials"), 0);
  EXPECT_GT(Updates("dials"), 100);
  EXPECT_GT(Json(run("dials") + "/result.json").Find("final_return_mean")->number, 7.5);
}

TEST_F(UnrollRunTest, OtherAlgorithmsRefuseSeveralComponentsInOneLine) {
  const auto troop = Train({"env.id=Dials-v0", "env.plugin=" TROOP_PLUGIN_FOLDER "/walk.so"});
  EXPECT_EQ(troop->Wait(), 2);
  EXPECT_NE(troop->output().find("Dials-v0 has actions of 3 discrete components, which "
                                 "learner.algorithm = \"dqn\" does not support"),
            std::string::npos)
      << troop->output();
}

// Overlapping sequences with burn-in and prioritized replay, by two learners through shards.
TEST_F(UnrollRunTest, R2d2SurvivesDeaths) {
  std::vector<std::string> words{
      "learner.algorithm=r2d2",
      "name=r2d2",
      "env.id=StatelessCartPole-v1",
      "network.layers=[{type=\"linear\", units=16}, {type=\"gru\", units=16}]",
      "actor.unroll_length=16",
      "actor.unroll_overlap=8",
      "actor.burn_in=8",
      "actor.n_step=5",
      "actor.insert_batch_size=8",
      "replay.min_items=64",
      "replay.capacity_items=2000",
      "replay.samples_per_insert=2",
      "learner.batch_size=8",
      "learner.sync=paramserver",
      "paramserver.shards=2",
      "fleet.learners=2",
      "run.total_steps=" + std::to_string(kUnrolledSteps)};
  const auto troop = Train(words);
  ASSERT_TRUE(AwaitSteps(3000, "r2d2")) << troop->output();
  for (const char* const role : {"learner", "actor"}) {
    const std::vector<pid_t> processes = RoleProcesses(Coordinator("r2d2"), role);
    ASSERT_FALSE(processes.empty());
    SendSignal(processes[0], SIGKILL);
  }
  ExpectDone(troop.get(), kUnrolledSteps, "r2d2");
  EXPECT_GT(Updates("r2d2"), 100);
  EXPECT_TRUE(std::isfinite(Json(run("r2d2") + "/result.json").Find("final_return_mean")->number));
}

// An actor has stacks of frames, and the batches of unrolls have them too.
TEST_F(UnrollRunTest, StackedFramesAndInferenceServersTrain) {
  for (const std::string name : {"pqn", "vtrace"}) {
    const auto troop = Train(Words(name, {"env.frame_stack=3", "actor.inference=server"}));
    ExpectDone(troop.get(), kUnrolledSteps, name);
    EXPECT_GT(Updates(name), 100);
  }
}

}  // namespace
}  // namespace troop
