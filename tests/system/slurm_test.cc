// Tests of `troop train --engine slurm` on a real cluster of four nodes, each with a separate
// network.
#include <stdlib.h>

#include <cstdlib>

#include "tests/system/slurm_cluster.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

class SlurmTest : public SystemTest {
 protected:
  void SetUp() override {
    const std::string missing = SlurmCluster::WhatIsMissing();
    if (!missing.empty()) GTEST_SKIP() << "no Slurm cluster here: " << missing;
    cluster_ = std::make_unique<SlurmCluster>(folder());
    ASSERT_TRUE(cluster_->AwaitReady()) << cluster_->said();
  }
  // By the config's placing on nodes of two CPUs: coordinator and weights on n1, the learner on n2,
  // the replay on n3; an actor on each.
  void Submit(const std::vector<std::string>& more = {}) {
    std::string line = std::string("on n1 ") + TROOP_PROGRAM;
    std::vector<std::string> words = TrainWords(
        {"slurm.nodes=4", "fleet.actors=4", "run.total_steps=1e9", "fleet.shutdown_grace_s=4"});
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--engine", "slurm"});
    for (const std::string& word : words) line += " '" + word + "'";
    const auto said = cluster_->Run(line);
    ASSERT_EQ(said.code, 0) << said.text;
    ASSERT_NE(said.text.find("submitted job 1"), std::string::npos) << said.text;
  }
  std::string JobOutput() const { return FileText(run() + ".slurm/1.out"); }
  std::string Everything() const { return JobOutput() + LauncherLog() + "status: " + answer_; }
  // The coordinator's current members, "actor-3 n4" and so on. A missing answer does not mean an
  // empty fleet: a loaded machine is queried again.
  std::set<std::string> Members() {
    const std::string line =
        std::string("on ctl ") + TROOP_PROGRAM + " status " + run() + " --json";
    auto said = cluster_->Run(line);
    for (int again = 0; said.code != 0 && again < 2; ++again) said = cluster_->Run(line);
    answer_ = said.text;
    const auto view = ParseJson(said.code == 0 ? said.text : "");
    const JsonValue* members = view.ok() ? view->Find("members") : nullptr;
    std::set<std::string> found;
    for (std::size_t i = 0; members != nullptr && i < members->array.size(); ++i) {
      found.insert(*members->array[i].String("role") + " " + *members->array[i].String("host"));
    }
    return found;
  }
  bool Plays(const std::string& role, const std::string& node) {
    return Members().contains(role + " " + node);
  }
  int Actors() {
    const auto members = Members();
    return int(
        std::ranges::count_if(members, [](const auto& m) { return m.starts_with("actor"); }));
  }
  double Updates() const { return Metric("learner/updates"); }
  bool AwaitUpdates(double more) {
    const double from = Updates();
    return Await([&] { return Updates() > from + more; });
  }
  bool AwaitLearning() {
    return Await([&] { return Actors() == 4 && Updates() > 50; });
  }
  std::string JobState() {
    return cluster_->Run("on ctl scontrol show job 1 | grep -o 'JobState=[A-Z]*'").text;
  }
  // With a last checkpoint, and so that it can go on.
  void Cancel() {
    ASSERT_EQ(cluster_->Run("on ctl scancel 1").code, 0);
    EXPECT_TRUE(Await([&] {
      return JobOutput().find("resume with: troop resume") != std::string::npos;
    })) << Everything();
  }

  std::unique_ptr<SlurmCluster> cluster_;
  std::string answer_;
};

TEST_F(SlurmTest, LearnsCartPoleOnFourNodesInExactSteps) {
  Submit({"run.total_steps=60003", "evaluator.final_episodes=20"});
  EXPECT_TRUE(Await([&] { return Actors() == 4; })) << Everything();
  // The roles of other nodes join in any order.
  for (const char* member : {"learner-0 n2", "replay-0 n3", "paramserver-0 n1", "evaluator-0 n1"}) {
    EXPECT_TRUE(Await([&] { return Members().contains(member); })) << member << answer_;
  }
  ASSERT_TRUE(Await([&] { return fs::exists(run() + "/result.json"); }, 100)) << Everything();
  const JsonValue result = Json(run() + "/result.json");
  EXPECT_EQ(*result.Integer("steps"), 60003);
  EXPECT_EQ(*result.String("status"), "ok");
  for (const std::string node : {"n1", "n2", "n3", "n4"}) {
    EXPECT_TRUE(FileHas(run() + "/logs/" + node + "/actor-0.log", "joined as actor-")) << node;
  }
  // Chance gives 22.
  std::istringstream evaluations(FileText(run() + "/evaluations.jsonl"));
  double best = 0;
  for (std::string line; std::getline(evaluations, line);) {
    const auto value = ParseJson(line);
    const JsonValue* mean = value.ok() ? value->Find("return_mean") : nullptr;
    if (mean != nullptr) best = std::max(best, mean->number);
  }
  EXPECT_GE(best, 100) << Everything();
  EXPECT_TRUE(Await([&] { return JobState() == "JobState=COMPLETED\n"; })) << JobState();
  struct stat info {};
  ASSERT_EQ(stat((run() + ".slurm/keys/actor.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

// The behavior of one machine: the job's output names the fault and its place, and no role is
// restarted.
TEST_F(SlurmTest, BrokenEnvironmentFailsJobAtOnce) {
  Submit({"env.id=Walk-v0", "env.plugin=" TROOP_PLUGIN_FOLDER "/walk.so",
          "env.options.fault=throws", "env.options.at_step=1", "env.faults_max=10",
          "evaluator.enabled=false"});
  EXPECT_TRUE(Await([&] {
    return JobOutput().find("troop: the run failed: ") != std::string::npos;
  })) << Everything();
  for (const char* part : {"Walk-v0: ", "planted: step 5", "at step 1 of episode",
                           "10 faults without a complete episode", "fix the environment"}) {
    EXPECT_NE(JobOutput().find(part), std::string::npos) << part << "\n" << Everything();
  }
  EXPECT_TRUE(Await([&] { return JobState() == "JobState=FAILED\n"; })) << JobState();
  EXPECT_EQ(LauncherLog().find("; restart "), std::string::npos) << LauncherLog();
}

// Slurm itself needs 25 s to see it.
TEST_F(SlurmTest, ContinuesAfterDeathOfActorNode) {
  Submit();
  ASSERT_TRUE(AwaitLearning()) << Everything();
  EXPECT_EQ(cluster_->Run("kill_node 4").code, 0);
  EXPECT_TRUE(Await([&] { return LauncherLog().find("on n4) left:") != std::string::npos; }, 10))
      << Everything();
  EXPECT_TRUE(Await([&] { return Actors() == 3; }, 10)) << Everything();
  EXPECT_TRUE(AwaitUpdates(200)) << Everything();
  EXPECT_EQ(JobState(), "JobState=RUNNING\n");
  Cancel();
}

TEST_F(SlurmTest, MovesReplayAfterDeathOfItsNode) {
  Submit();
  ASSERT_TRUE(AwaitLearning()) << Everything();
  ASSERT_TRUE(Plays("replay-0", "n3")) << testing::PrintToString(Members());
  EXPECT_EQ(cluster_->Run("kill_node 3").code, 0);
  EXPECT_TRUE(Await([&] { return Plays("replay-0", "n4"); }, 20)) << Everything();
  EXPECT_TRUE(AwaitUpdates(200)) << Everything();
  EXPECT_EQ(JobState(), "JobState=RUNNING\n");
  Cancel();
}

TEST_F(SlurmTest, LearnersOfTwoNodesSurviveDeathOfOne) {
  Submit({"fleet.learners=2", "learner.allreduce_timeout_s=2"});
  const auto agree = [&](int groups) {
    const std::string log = RoleLog("learner-0");
    int found = 0;
    for (auto at = log.find("formed a group of 2 of 2"); at != std::string::npos;
         at = log.find("formed a group of 2 of 2", at + 1)) {
      ++found;
    }
    return found >= groups;
  };
  ASSERT_TRUE(Await([&] { return agree(1); }) && AwaitLearning()) << Everything();
  std::string nodes[2];
  for (const std::string& member : Members()) {
    for (const int i : {0, 1}) {
      const std::string name = "learner-" + std::to_string(i) + " n";
      if (member.starts_with(name)) nodes[i] = member.substr(name.size());
    }
  }
  ASSERT_NE(nodes[0], nodes[1]) << testing::PrintToString(Members());
  ASSERT_NE(nodes[1], "1") << "the coordinator's";
  EXPECT_EQ(cluster_->Run("kill_node " + nodes[1]).code, 0);
  EXPECT_TRUE(Await([&] { return agree(2); }, 40)) << Everything() << RoleLog("learner-0");
  EXPECT_FALSE(Plays("learner-1", "n" + nodes[1]));
  EXPECT_TRUE(AwaitUpdates(200)) << Everything();
  Cancel();
}

TEST_F(SlurmTest, MovesLearnerAndResumesFromCheckpoint) {
  Submit();
  ASSERT_TRUE(AwaitLearning() && AwaitCheckpoint()) << Everything();
  ASSERT_TRUE(Plays("learner-0", "n2")) << testing::PrintToString(Members());
  EXPECT_EQ(cluster_->Run("kill_node 2").code, 0);
  EXPECT_TRUE(Await([&] { return Plays("learner-0", "n4"); }, 20)) << Everything();
  EXPECT_TRUE(AwaitUpdates(200)) << Everything();
  EXPECT_TRUE(FileHas(run() + "/logs/learner-0.log", "checkpoints/")) << RoleLog("learner-0");
  Cancel();
}

TEST_F(SlurmTest, ReadmitsActorsAfterPartitionHeals) {
  Submit();
  ASSERT_TRUE(AwaitLearning()) << Everything();
  EXPECT_EQ(cluster_->Run("isolate 4").code, 0);
  EXPECT_TRUE(Await([&] { return Actors() == 3; }, 15)) << Everything();
  EXPECT_TRUE(AwaitUpdates(100)) << Everything();
  EXPECT_EQ(cluster_->Run("restore_link 4").code, 0);
  EXPECT_TRUE(Await([&] { return Actors() == 4; }, 40)) << Everything();
  Cancel();
}

TEST_F(SlurmTest, CancelLeavesCheckpointAndNextJobResumes) {
  Submit();
  ASSERT_TRUE(AwaitLearning()) << Everything();
  Cancel();
  EXPECT_TRUE(Await([&] { return JobState() == "JobState=CANCELLED\n"; })) << JobState();
  const double updates = Updates();
  const auto said = cluster_->Run(std::string("on n1 ") + TROOP_PROGRAM + " resume " + run());
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_TRUE(Await([&] { return FileHas(run() + ".slurm/2.out", "resuming"); })) << said.text;
  EXPECT_TRUE(Await([&] { return Updates() > updates + 20; })) << FileText(run() + ".slurm/2.out");
  cluster_->Run("on ctl scancel 2");
}

// The signal is what Slurm sends slurm.signal_s before the limit, up to a minute earlier.
TEST_F(SlurmTest, RequeuesBeforeTimeLimitAndResumes) {
  Submit({"slurm.time_limit=30", "slurm.signal_s=40"});
  ASSERT_TRUE(AwaitLearning()) << Everything();
  ASSERT_EQ(cluster_->Run("on ctl scancel --batch --signal=USR1 1").code, 0);
  EXPECT_TRUE(Await([&] {
    return JobOutput().find("resume with: troop resume") != std::string::npos;
  })) << Everything();
  EXPECT_TRUE(Await([&] { return JobOutput().find("resuming") != std::string::npos; }))
      << Everything() << cluster_->Run("on ctl scontrol show job 1").text;
  EXPECT_NE(cluster_->Run("on ctl scontrol show job 1").text.find("Restarts=1"), std::string::npos);
  EXPECT_TRUE(AwaitUpdates(20)) << Everything();
  Cancel();
}

}  // namespace
}  // namespace troop
