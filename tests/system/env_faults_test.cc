// Environments of others that crash, hang or err in a run of real processes (the plug-in is
// tests/envs/faulty_plugin.cc).

#include "tests/system/troop_process.h"

namespace troop {
namespace {

class EnvFaultsTest : public SystemTest {
 protected:
  // A copy of the library for this test alone: any process that has it mapped belongs to the run.
  EnvFaultsTest() { std::filesystem::copy_file(TROOP_PLUGIN_FOLDER "/walk.so", plugin()); }
  std::string plugin() const { return folder() + "/walk.so"; }

  std::vector<std::string> Words(const std::string& fault, int at_step,
                                 std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.end(),
                     {"env.id=Walk-v0", "env.plugin=" + plugin(), "env.options.fault=" + fault,
                      "env.options.at_step=" + std::to_string(at_step),
                      "evaluator.enabled=false"});  // its walks may all be longer
    return TrainWords(overrides);
  }
  // Processes with the library in memory.
  std::vector<pid_t> Players() const {
    const std::string library = std::filesystem::canonical(plugin()).string();
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != name.npos) continue;
      if (FileText(entry.path().string() + "/maps").find(library) != std::string::npos) {
        found.push_back(pid_t(std::stol(name)));
      }
    }
    return found;
  }
  void ExpectTold(const std::string& what) const {
    const std::string log = ActorLogs();
    const auto origin = log.find("Walk-v0: ");
    ASSERT_NE(origin, log.npos) << log;
    for (const std::string& part : {what, std::string(" at step "), std::string("of episode "),
                                    std::string("of environment "), std::string("(seed ")}) {
      EXPECT_NE(log.find(part, origin), log.npos) << part << "\n" << log;
    }
  }
  // No role was restarted for it, and no environment process is left.
  void ExpectOthersUnharmed() const {
    EXPECT_EQ(LauncherLog().find("; restart "), std::string::npos) << LauncherLog();
    EXPECT_EQ(Players(), std::vector<pid_t>());
  }
};

TEST_F(EnvFaultsTest, SegmentationFaultCostsOnlyEpisodes) {
  const auto troop = Start(Words("segfault", 35, {"run.total_steps=3000"}));
  ExpectDone(troop.get(), 3000);
  EXPECT_GT(Metric("actor/env_faults"), 0);
  ExpectTold("ended by signal 11 (Segmentation fault)");
  ExpectOthersUnharmed();
}

TEST_F(EnvFaultsTest, EndsHungStepAtDeadline) {
  const auto troop = Start(Words("hangs", 38, {"run.total_steps=1500", "env.step_timeout_s=0.2"}));
  ExpectDone(troop.get(), 1500);
  EXPECT_GT(Metric("actor/env_faults"), 0);
  ExpectTold("env.step_timeout_s = 0.2");
  ExpectOthersUnharmed();
}

// The actor was restarted 20 times first, which took minutes without a word.
TEST_F(EnvFaultsTest, FailsAtOnceWhenEnvironmentAlwaysFails) {
  const auto troop = Start(Words("throws", 1, {"env.faults_max=10"}));
  ASSERT_EQ(troop->Wait(), 1) << troop->output();
  for (const char* part :
       {"troop: the run failed: ", "Walk-v0: ", "planted: step 5", "at step 1 of episode",
        "10 faults without a complete episode", "fix the environment"}) {
    EXPECT_NE(troop->output().find(part), std::string::npos) << part << "\n" << troop->output();
  }
  ExpectOthersUnharmed();
}

TEST_F(EnvFaultsTest, SurvivesErrorInActorProcess) {
  const auto troop = Start(Words("throws", 35, {"run.total_steps=3000", "env.isolation=none"}));
  ExpectDone(troop.get(), 3000);
  EXPECT_GT(Metric("actor/env_faults"), 0);
  ExpectTold("planted: step 5");
  ExpectOthersUnharmed();
}

TEST_F(EnvFaultsTest, EnvironmentProcessesEndWithActor) {
  const auto troop = Start(Words("", 0, {"run.total_steps=10000000"}));
  const pid_t actor = AwaitFirst("actor");
  pid_t player = 0;
  ASSERT_TRUE(Await([&] {
    for (const pid_t p : Players()) {
      const std::string status = FileText("/proc/" + std::to_string(p) + "/status");
      if (status.find("PPid:\t" + std::to_string(actor) + "\n") != status.npos) player = p;
    }
    return player != 0;
  }));
  kill(actor, SIGKILL);
  EXPECT_TRUE(Await([&] { return std::ranges::count(Players(), player) == 0; }));
  EXPECT_TRUE(Await([&] { return LauncherLog().find("restart ") != std::string::npos; }));
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
  EXPECT_EQ(Players(), std::vector<pid_t>());
}

}  // namespace
}  // namespace troop
