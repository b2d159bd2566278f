// Fleets whose items are unrolls: nothing is learned from twice or lost unseen, through the deaths
// of actors and learners.

#include <cmath>

#include "tests/system/troop_process.h"

namespace troop {
namespace {

constexpr int kUnrolledSteps = 60001, kCapacity = 512;

class UnrollRunTest : public SystemTest {
 protected:
  static std::vector<std::string> Pqn(const std::vector<std::string>& more) {
    std::vector<std::string> words{
        "learner.algorithm=pqn",
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
  double Updates() const { return Json(run() + "/result.json").Find("updates")->number; }
};

// Each unroll was trained on once, or waits; the queue has room, so that none was evicted before.
TEST_F(UnrollRunTest, CountsOfUnrollsAddUp) {
  const auto troop = Train(Pqn({}));
  ExpectDone(troop.get(), kUnrolledSteps);
  const double inserts = Metric("replay/inserts"), samples = Metric("replay/samples");
  EXPECT_GE(inserts, kUnrolledSteps / 16);
  // Sampling requires 16 items, so fewer are left at the end.
  const double left = Metric("replay/fill") * kCapacity;
  EXPECT_LT(left, 16);
  EXPECT_EQ(inserts, samples + left);
  EXPECT_EQ(samples, Metric("replay/evicted"));
  EXPECT_EQ(samples, 4 * Updates());
}

TEST_F(UnrollRunTest, LearnersSurviveDeaths) {
  for (const std::vector<std::string>& sync :
       {std::vector<std::string>{"learner.sync=allreduce"},
        {"learner.sync=paramserver", "paramserver.shards=2"}}) {
    std::vector<std::string> words = Pqn(sync);
    words.push_back("fleet.learners=2");
    words.push_back("name=" + sync[0].substr(13));
    const std::string name = words.back().substr(5);
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

// An actor has stacks of frames, and the batches of unrolls have them too.
TEST_F(UnrollRunTest, StackedFramesAndInferenceServersTrain) {
  const auto troop = Train(Pqn({"env.frame_stack=3", "actor.inference=server"}));
  ExpectDone(troop.get(), kUnrolledSteps);
  EXPECT_GT(Updates(), 100);
}

}  // namespace
}  // namespace troop
