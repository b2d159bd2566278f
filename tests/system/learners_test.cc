// Several learners of one run: in step, through deaths and a freeze, to exactly its steps.

#include <cmath>

#include "core/storage/storage.h"
#include "learners/checkpoint.h"
#include "nn/io/safetensors.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

class LearnersTest : public SystemTest {
 protected:
  // Returns the process of learner `index`, once it differs from `before`.
  pid_t AwaitLearner(int index, pid_t before = 0) const {
    pid_t process = 0;
    EXPECT_TRUE(Await([&] {
      for (const pid_t found : RoleProcesses(Coordinator(), "learner")) {
        const std::vector<std::string> words = CommandLine(found);
        if (found != before && words.size() > 4 && words[4] == std::to_string(index)) {
          process = found;
        }
      }
      return process != 0;
    })) << index;
    return process;
  }
  // How often learner i has come in step with all of a run with `learners`.
  int Groups(int index, int size, int learners = 3) const {
    const std::string log = RoleLog("learner-" + std::to_string(index));
    const std::string line = fmt::format("formed a group of {} of {}", size, learners);
    int count = 0;
    for (std::size_t at = log.find(line); at != log.npos; at = log.find(line, at + 1)) ++count;
    return count;
  }
  bool AwaitGroups(int index, int size, int count) const {
    return Await([&] { return Groups(index, size) >= count; });
  }
  std::string Logs() const {
    return RoleLog("learner-0") + RoleLog("learner-1") + RoleLog("learner-2") + LauncherLog();
  }
};

TEST_F(LearnersTest, ThreeSurviveDeathOfEachAndTakeExactSteps) {
  const auto troop = TrainLong({"fleet.learners=3"});
  ASSERT_TRUE(AwaitGroups(0, 3, 1)) << Logs();
  ASSERT_TRUE(AwaitSteps(1000)) << Logs();
  for (const int index : {1, 0, 2}) {
    const int before = Groups((index + 1) % 3, 3);
    const pid_t process = AwaitLearner(index);
    SendSignal(process, SIGKILL);
    AwaitLearner(index, process);
    ASSERT_TRUE(AwaitGroups((index + 1) % 3, 3, before + 1)) << Logs();
    ASSERT_TRUE(AwaitGroups(index, 3, 1)) << Logs();
  }
  ExpectDone(troop.get(), kLongSteps);
  const auto storage = MakeDiskStorage(run());
  const auto newest = NewestCheckpoint(storage->get());
  ASSERT_TRUE(newest.ok()) << newest.status().ToString();
  const auto checkpoint = ReadCheckpoint(storage->get(), *newest);
  ASSERT_TRUE(checkpoint.ok());
  // Eight samples a step, in batches of 64 from each of three, but for what deaths cost.
  EXPECT_GT(double(checkpoint->updates), 0.8 * kLongSteps * 8 / 64 / 3);
  EXPECT_LE(double(checkpoint->updates), 1.01 * kLongSteps * 8 / 64 / 3);
  EXPECT_EQ(Json(run() + "/result.json").Find("updates")->number, double(checkpoint->updates));
  // A learner that came back counted what it adopted: as much again with the death of the first.
  EXPECT_LT(Metric("learner/updates"), 1.5 * double(checkpoint->updates)) << Logs();
}

TEST_F(LearnersTest, HogwildThreadsTakeExactSteps) {
  const auto troop = TrainLong({"learner.hogwild_threads=3"});
  ExpectDone(troop.get(), kLongSteps);
  const auto storage = MakeDiskStorage(run());
  const auto newest = NewestCheckpoint(storage->get());
  ASSERT_TRUE(newest.ok()) << newest.status().ToString();
  const auto checkpoint = ReadCheckpoint(storage->get(), *newest);
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_NEAR(double(checkpoint->updates), kLongSteps * 8 / 64, 0.02 * kLongSteps * 8 / 64);
}

TEST_F(LearnersTest, GroupDropsFrozenLearnerAndReadmitsIt) {
  const auto troop =
      Train({"fleet.learners=3", "learner.allreduce_timeout_s=0.5", "run.total_steps=100000000"});
  ASSERT_TRUE(AwaitGroups(0, 3, 1)) << Logs();
  ASSERT_TRUE(AwaitSteps(1000)) << Logs();
  const pid_t process = AwaitLearner(2);
  SendSignal(process, SIGSTOP);
  EXPECT_TRUE(AwaitGroups(0, 2, 1)) << Logs();
  SendSignal(process, SIGCONT);
  EXPECT_TRUE(AwaitGroups(2, 3, 2)) << Logs();
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
}

TEST_F(LearnersTest, DoNotContinueAloneWithoutCoordinator) {
  const auto troop = Train({"fleet.learners=3", "run.total_steps=1e9"});
  ASSERT_TRUE(AwaitGroups(0, 3, 1)) << Logs();
  const pid_t process = AwaitLearner(2);
  troop->Signal(SIGSTOP);
  SendSignal(process, SIGKILL);
  // They wait 5 s for each other, unaware that one is gone.
  EXPECT_TRUE(Await([&] { return RoleLog("learner-0").find("has ended") != std::string::npos; }));
  std::this_thread::sleep_for(std::chrono::seconds(6));
  EXPECT_EQ(Groups(0, 1) + Groups(1, 1), 0) << Logs();
  troop->Signal(SIGCONT);
  EXPECT_TRUE(AwaitGroups(0, 3, 2)) << Logs();
  EXPECT_TRUE(AwaitGroups(2, 3, 1)) << Logs();
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
}

class SerialLearnersTest : public LearnersTest, public testing::WithParamInterface<const char*> {};

TEST_P(SerialLearnersTest, TwoGiveSameBytes) {
  std::vector<std::string> overrides{"fleet.learners=2", "fleet.mode=serial",
                                     "run.total_steps=4001"};
  std::istringstream words(GetParam());
  for (std::string word; words >> word;) overrides.push_back(word);
  std::string weights[2];
  for (const int i : {0, 1}) {
    const std::string name = "serial-" + std::to_string(i);
    overrides.push_back("name=" + name);
    const auto troop = Train(overrides);
    overrides.pop_back();
    ExpectDone(troop.get(), 4001, name);
    const auto storage = MakeDiskStorage(run(name));
    const auto newest = NewestCheckpoint(storage->get());
    ASSERT_TRUE(newest.ok()) << newest.status().ToString();
    weights[i] = FileText(run(name) + "/" + *newest + "/state.safetensors");
  }
  EXPECT_FALSE(weights[0].empty());
  EXPECT_EQ(weights[0], weights[1]);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, SerialLearnersTest,
    testing::Values("learner.sync=allreduce",
                    "learner.sync=paramserver paramserver.shards=2 paramserver.mode=bsp",
                    "learner.sync=paramserver paramserver.shards=2 paramserver.mode=async "
                    "replay.shards=2 replay.scope=local"),
    [](const auto& info) {
      return std::string(info.index == 0 ? "allreduce" : info.index == 1 ? "shards" : "gorila");
    });

TEST_F(LearnersTest, EachMayHaveLocalReplay) {
  const auto troop = Train({"fleet.learners=2", "replay.shards=2", "replay.scope=local"});
  ExpectDone(troop.get(), 8001);
  for (const char* learner : {"learner-0", "learner-1"}) {
    EXPECT_NE(RoleLog(learner).find("formed a group of 2 of 2"), std::string::npos)
        << RoleLog(learner);
  }
}

class ShardedLearnersTest : public LearnersTest, public testing::WithParamInterface<const char*> {};

// A learner without batches is not waited for, or these runs would not end.
TEST_P(ShardedLearnersTest, TrainInEveryMode) {
  std::istringstream words(GetParam());
  std::vector<std::string> overrides{"learner.sync=paramserver", "fleet.learners=2",
                                     "paramserver.shards=2"};
  for (std::string word; words >> word;) overrides.push_back("paramserver." + word);
  if (overrides.back() == "paramserver.pull_every=4") {  // local_sgd
    overrides.insert(overrides.end(), {"optimizer.type=sgd", "optimizer.learning_rate=0.01"});
  }
  const auto troop = Train(overrides);
  ExpectDone(troop.get(), 8001);
  EXPECT_GT(Metric("learner/updates"), 0.4 * 8001 * 8 / 64 / 2 / 4) << Logs();
}

INSTANTIATE_TEST_SUITE_P(Modes, ShardedLearnersTest,
                         testing::Values("mode=bsp", "mode=k_of_n k=1 cancel=true",
                                         "mode=ssp staleness=2 compression=bf16",
                                         "mode=async push_every=2 compression=top_k topk_ratio=0.1",
                                         "mode=async hogwild_threads=3",
                                         "mode=local_sgd push_every=4 pull_every=4"),
                         [](const auto& info) {
                           const std::string text = info.param;
                           const std::string mode = text.substr(5, text.find_first_of(" ", 5) - 5);
                           return text.find("hogwild") == text.npos ? mode : mode + "_hogwild";
                         });

TEST_F(LearnersTest, GorilaSurvivesDeathOfLearnersAndShards) {
  const auto troop = TrainLong({"learner.sync=paramserver", "paramserver.mode=async",
                                "paramserver.shards=2", "paramserver.backup=true",
                                "fleet.learners=2", "replay.shards=2", "replay.scope=local"});
  ASSERT_TRUE(AwaitSteps(1000)) << Logs();
  for (const int index : {1, 0}) {
    const pid_t process = AwaitLearner(index);
    SendSignal(process, SIGKILL);
    AwaitLearner(index, process);
    ASSERT_TRUE(AwaitSteps(Steps() + 2000)) << Logs();
    const pid_t shard = AwaitFirst("paramserver");
    SendSignal(shard, SIGKILL);
    ASSERT_TRUE(AwaitSteps(Steps() + 2000)) << Logs();
  }
  ExpectDone(troop.get(), kLongSteps);
  const JsonValue result = Json(run() + "/result.json");
  EXPECT_EQ(result.Find("updates")->number, result.Find("final_updates")->number);
}

// Two learners of policy and critics, one of which is killed.
class ActorCriticLearnersTest : public LearnersTest,
                                public testing::WithParamInterface<const char*> {
 protected:
  // Weights, targets and optimizer state of the newest checkpoint.
  void ExpectFiniteCheckpoint(bool soft) const {
    const auto storage = MakeDiskStorage(run());
    const auto newest = NewestCheckpoint(storage->get());
    ASSERT_TRUE(newest.ok()) << newest.status().ToString();
    EXPECT_EQ(*newest, *Json(run() + "/result.json").String("checkpoint"));
    const auto checkpoint = ReadCheckpoint(storage->get(), *newest);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    EXPECT_EQ(checkpoint->steps, kLongSteps);
    EXPECT_GT(checkpoint->updates, 100u);
    for (const auto& [name, tensor] : checkpoint->state.tensors) {
      const auto values = tensor.as<float>();
      EXPECT_TRUE(std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) << name;
    }
    const auto weights =
        DecodeSafetensors(Buffer::Copy(FileText(run() + "/" + *newest + "/weights.safetensors")));
    ASSERT_TRUE(weights.ok()) << weights.status().ToString();
    EXPECT_EQ(weights->tensors.contains("log_temperature"), soft);
    if (!soft) return;
    // A learned temperature leaves its initial value 1.
    EXPECT_NE(weights->tensors.at("log_temperature").as<float>()[0], 0);
  }
  // A number that is NaN or infinite has no form in JSON.
  void ExpectFiniteMetrics(bool soft) const {
    std::vector<const char*> names{"learner/loss", "learner/grad_norm", "learner/q_mean"};
    if (soft) names.insert(names.end(), {"learner/temperature", "learner/entropy"});
    for (const char* name : names) {
      int lines = 0;
      std::istringstream file(FileText(run() + "/metrics.jsonl"));
      for (std::string line; std::getline(file, line);) {
        const auto json = ParseJson(line);
        ASSERT_TRUE(json.ok()) << line;
        const JsonValue* value = json->Find(name);
        if (value == nullptr) continue;
        ++lines;
        EXPECT_EQ(value->kind, JsonValue::Kind::kNumber) << name << " " << line;
        EXPECT_TRUE(std::isfinite(value->number)) << name << " " << line;
      }
      EXPECT_GT(lines, 0) << name;
    }
  }
};

TEST_P(ActorCriticLearnersTest, SurviveDeathOfOne) {
  std::vector<std::string> overrides{"env.id=Pendulum-v1",
                                     "network.layers=[{type = \"linear\", units = 16}]",
                                     "fleet.learners=2",
                                     "learner.batch_size=32",
                                     "learner.target_update_every_updates=2",
                                     "learner.target_tau=0.01",
                                     "replay.samples_per_insert=4"};
  std::istringstream words(GetParam());
  for (std::string word; words >> word;) overrides.push_back(word);
  const bool soft = std::ranges::count(overrides, "learner.algorithm=sac") > 0;
  const bool shards = std::ranges::count(overrides, "learner.sync=paramserver") > 0;
  const auto troop = TrainLong(overrides);
  ASSERT_TRUE(shards || Await([&] { return Groups(0, 2, 2) >= 1; })) << Logs();
  ASSERT_TRUE(AwaitSteps(1000)) << Logs();
  const pid_t process = AwaitLearner(1);
  SendSignal(process, SIGKILL);
  AwaitLearner(1, process);
  ASSERT_TRUE(shards || Await([&] { return Groups(0, 2, 2) >= 2; })) << Logs();
  ExpectDone(troop.get(), kLongSteps);
  EXPECT_NE(LauncherLog().find("learner-1 ended (killed by signal 9"), std::string::npos);
  ExpectFiniteCheckpoint(soft);
  ExpectFiniteMetrics(soft);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ActorCriticLearnersTest,
    testing::Values("learner.algorithm=sac learner.sync=allreduce",
                    "learner.algorithm=sac learner.sync=paramserver paramserver.shards=2",
                    "learner.algorithm=td3 learner.sync=allreduce"),
    [](const auto& info) {
      return std::string(info.index == 0   ? "sac_allreduce"
                         : info.index == 1 ? "sac_shards"
                                           : "td3_allreduce");
    });

// In one thread every draw is the same each time. What is spoilt is spoilt for the guard of the
// loss if the loss shows it.
class SpoiltGradientsTest : public LearnersTest, public testing::WithParamInterface<const char*> {};

TEST_P(SpoiltGradientsTest, AreDroppedAsLossOrNormOutliers) {
  const std::string act = std::string(GetParam()).substr(0, std::string(GetParam()).find('_'));
  const bool norms = act != GetParam();
  const auto troop = Start(
      TrainWords(
          {"fleet.mode=serial", "fleet.learners=2", "replay.shards=2", "replay.scope=local",
           "learner.sync=paramserver", "paramserver.mode=async", "paramserver.outlier_sigmas=10",
           norms ? "paramserver.outlier_norm_sigmas=10" : "paramserver.outlier_norm_sigmas=0"}),
      {"TROOP_FAILPOINT=learner.push:20:" + act});
  ExpectDone(troop.get(), 8001);
  // Each of two learners pushes 500 gradients, of which 100 are always sound. Of the other 800, one
  // in 20 is corrupted at random: 40 on average, with a standard deviation of 6.
  const double dropped = Metric("paramserver/pushes_rejected_outlier");
  if (act == "wild" || norms) {
    EXPECT_GE(dropped, 15);
    EXPECT_LE(dropped, 80);
  } else {
    EXPECT_LE(dropped, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Acts, SpoiltGradientsTest,
                         testing::Values("wild", "sly", "sly_with_norms"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(LearnersTest, DropsStaleGradientsOfSlowLearner) {
  const auto troop = Start(
      TrainWords({"fleet.learners=2", "replay.shards=2", "replay.scope=local",
                  "learner.sync=paramserver", "paramserver.mode=async",
                  "paramserver.max_staleness=10", "actor.lease_steps=50", "run.total_steps=1e9"}),
      {"TROOP_FAILPOINT=learner.pace:40:slow:" + folder() + "/slow"});
  EXPECT_TRUE(Await([&] { return Metric("paramserver/pushes_rejected_stale") >= 5; })) << Logs();
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
}

}  // namespace
}  // namespace troop
