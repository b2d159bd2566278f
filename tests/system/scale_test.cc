// `troop scale` with real processes, some of which are killed meanwhile.

#include "tests/system/troop_process.h"

namespace troop {
namespace {

class ScaleTest : public SystemTest {
 protected:
  // A run that ends only by a signal: however fast the machine, it is there to be scaled.
  std::unique_ptr<Troop> TrainOn(std::vector<std::string> overrides) const {
    overrides.push_back("run.total_steps=1e9");
    return Train(overrides);
  }
  // Exit code and output.
  std::pair<int, std::string> Scale(const std::string& what) const {
    const auto troop = Start({"scale", run(), what});
    const int code = troop->Wait();
    return {code, troop->output()};
  }
  pid_t Server(int index) const {
    for (const pid_t found : RoleProcesses(Coordinator(), "paramserver")) {
      const std::vector<std::string> words = CommandLine(found);
      if (words.size() > 4 && words[4] == std::to_string(index)) return found;
    }
    return 0;
  }
  bool AwaitServers(std::size_t count) const {
    return Await([&] { return RoleProcesses(Coordinator(), "paramserver").size() == count; });
  }
};

TEST_F(ScaleTest, ScalesParameterShardsDuringRun) {
  const auto troop =
      TrainOn({"learner.sync=paramserver", "fleet.learners=2", "paramserver.shards=2",
               "paramserver.mode=async", "paramserver.hogwild_threads=2"});
  ASSERT_TRUE(AwaitSteps(1000)) << LauncherLog();
  const auto more = Scale("paramserver=3");
  EXPECT_EQ(more.first, 0) << more.second << LauncherLog();
  EXPECT_NE(more.second.find("from 2 to 3"), std::string::npos) << more.second;
  EXPECT_TRUE(AwaitServers(3));
  // One dies in a move, which is made or given up; then it is made.
  const auto scale = Start({"scale", run(), "paramserver=1"});
  SendSignal(Server(1), SIGKILL);
  const int code = scale->Wait();
  EXPECT_TRUE(code == 0 || scale->output().find("aborted, 3") != std::string::npos)
      << scale->output() << LauncherLog();
  if (code != 0) {
    ASSERT_TRUE(AwaitServers(3)) << LauncherLog();
    EXPECT_TRUE(Await([&] { return Scale("paramserver=1").first == 0; })) << LauncherLog();
  }
  EXPECT_TRUE(AwaitServers(1)) << LauncherLog();
  const auto status = Start({"status", run(), "--json"});
  EXPECT_EQ(status->Wait(), 0);
  const auto view = ParseJson(status->output());
  ASSERT_TRUE(view.ok()) << status->output();
  ASSERT_NE(view->Find("parameter_shards"), nullptr) << status->output();
  EXPECT_EQ(*view->Find("parameter_shards")->Integer("count"), 1);
  EXPECT_EQ(*view->Find("parameter_shards")->Integer("epoch"), 3);
  const std::int64_t before = Steps();
  ASSERT_TRUE(AwaitSteps(before + 1000)) << LauncherLog();
  // The run resumes where it was stopped, with the same number of shards.
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
  const std::int64_t last = *Json(run() + "/result.json").Integer("steps") + 5000;
  const auto again = Start({"resume", run(), "run.total_steps=" + std::to_string(last)});
  ExpectDone(again.get(), int(last));
  EXPECT_NE(RoleLog("paramserver-0").find("resuming from paramserver/move-"), std::string::npos);
  EXPECT_GT(Metric("learner/updates"), 100);
}

TEST_F(ScaleTest, ScalesActorsReplayAndLearnersDuringRun) {
  const auto troop = TrainOn({"learner.publish_every_updates=20"});
  ASSERT_TRUE(AwaitSteps(1000)) << LauncherLog();
  const auto scales = [&](const std::string& what, const std::string& says) {
    const auto [code, output] = Scale(what);
    EXPECT_EQ(code, 0) << output << LauncherLog();
    EXPECT_NE(output.find(says), std::string::npos) << output;
  };
  const auto count = [&](const char* role) { return RoleProcesses(Coordinator(), role).size(); };
  scales("actors=5", "from 2 to 5 actors");
  EXPECT_EQ(count("actor"), 5u);
  scales("replay=3", "from 1 to 3 replay shards");
  scales("learners=2", "from 1 to 2 learners");
  std::int64_t steps = Steps();
  ASSERT_TRUE(AwaitSteps(steps + 2000)) << LauncherLog();
  EXPECT_TRUE(Await([&] {
    return RoleLog("learner-0").find("formed a group of 2 of 2") != std::string::npos;
  })) << RoleLog("learner-0");
  scales("actors=1", "from 5 to 1 actors");
  EXPECT_EQ(count("actor"), 1u);
  scales("actors=3", "from 1 to 3 actors");
  scales("learners=1", "from 2 to 1 learners");
  scales("replay=1", "removed shards exit");
  // The remaining shard receives as many items as the removed ones hold.
  EXPECT_TRUE(Await([&] { return count("replay") == 1; })) << LauncherLog();
  steps = Steps();
  ASSERT_TRUE(AwaitSteps(steps + 1000)) << LauncherLog();
  EXPECT_EQ(LauncherLog().find("restart 1"), std::string::npos) << LauncherLog();
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
}

TEST_F(ScaleTest, RejectsInvalidScaleRequestsInOneLine) {
  const auto refuses = [&](const std::string& what, const std::string& why) {
    const auto [code, output] = Scale(what);
    EXPECT_EQ(code, 2) << output;
    EXPECT_NE(output.find(why), std::string::npos) << output;
    EXPECT_EQ(std::ranges::count(output, '\n'), 1) << output;
  };
  refuses("paramserver=3", "not a run folder");
  const auto troop = TrainLong();
  ASSERT_TRUE(AwaitSteps(100)) << LauncherLog();
  refuses("paramserver=3", "no parameter shards");
  refuses("paramserver", "not ROLE=COUNT");
  refuses("paramserver=3x", "not ROLE=COUNT");
  refuses("actor=3", "actor can't be scaled");
  refuses("actors=0", "from 1 to 100000");
  refuses("replay=501", "501 shards for 8 environments");
  refuses("actors=100000", "exceed the limit of this machine");
  troop->Signal(SIGKILL);
  troop->Wait();
  const auto [code, output] = Scale("paramserver=3");
  EXPECT_EQ(code, 1);
  EXPECT_NE(output.find("it was killed"), std::string::npos) << output;
}

}  // namespace
}  // namespace troop
