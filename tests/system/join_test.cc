// Fleets of more than one machine: actors that join over TCP with keys, and peers that are
// rejected.
#include "tests/system/join_fleet.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

using JoinTest = JoinFleet;

// Searches all files of the run, on both machines, and all printed output.
TEST_F(JoinTest, ActorsJoinWithKeyAndLeaveNoSecret) {
  const auto troop = Start(ListenWords("127.0.0.2", "150003"));
  const auto join = Start(JoinWords("2", "join", key()));
  ExpectDone(troop.get(), 150003);
  EXPECT_EQ(join->Wait(), 0) << join->output();
  EXPECT_NE(join->output().find("joined run"), std::string::npos) << join->output();
  EXPECT_NE(join->output().find("no longer needs roles of kind actor"), std::string::npos)
      << join->output();
  EXPECT_TRUE(FileHas(folder() + "/join/actor-0.log", "joined as actor-")) << LauncherLog();
  EXPECT_TRUE(LearnedBehind(0));
  ExpectNoSecretLeft();
}

// A machine that fails without any notice.
TEST_F(JoinTest, SurvivesDeathOfJoinedMachine) {
  const auto troop = Start(ListenWords());
  auto first = Start(JoinWords("2", "join-1", key()));
  EXPECT_TRUE(Await([&] { return Actors() == 3; })) << first->output() << LauncherLog();
  ASSERT_TRUE(AwaitSteps(3000)) << LauncherLog();
  EXPECT_EQ(RoleProcesses(Address(), "actor").size(), 2u);
  first->Signal(SIGKILL);
  EXPECT_TRUE(Await([&] { return RoleProcesses(Address(), "actor").empty(); }))
      << "the actors exit with their launcher";
  EXPECT_TRUE(Await([&] { return Actors() == 1; })) << LauncherLog();
  EXPECT_NE(LauncherLog().find("left: its connection ended"), std::string::npos) << LauncherLog();
  const auto second = Start(JoinWords("2", "join-2", key()));
  EXPECT_TRUE(Await([&] { return Actors() == 3; })) << second->output() << LauncherLog();
  const std::size_t seen = FileText(run() + "/evaluations.jsonl").size();
  EXPECT_TRUE(Await([&] { return LearnedBehind(seen); })) << LauncherLog();
  Stop(troop.get());
  EXPECT_EQ(second->Wait(), 0) << second->output();
}

TEST_F(JoinTest, ContinuesAfterJoinedMachineLeaves) {
  const auto troop = Start(ListenWords());
  const auto join = Start(JoinWords("1", "join", key()));
  EXPECT_TRUE(Await([&] { return LauncherLog().find("actor-1 connected") != std::string::npos; }))
      << join->output() << LauncherLog();
  EXPECT_EQ(Actors(), 2);
  join->Signal(SIGTERM);
  EXPECT_EQ(join->Wait(), 0) << join->output();
  EXPECT_NE(join->output().find("left run"), std::string::npos) << join->output();
  EXPECT_TRUE(Await([&] { return Actors() == 1; }));
  Stop(troop.get());
}

TEST_F(JoinTest, RejectsBadKeyWithOneLineOnBothSides) {
  const auto troop = Start(ListenWords());
  const std::string strangers = folder() + "/strangers";
  const auto made = Start({"keygen", strangers});
  ASSERT_EQ(made->Wait(), 0) << made->output();
  // The key file names the right coordinator, but its own key is not in the coordinator's list.
  std::string text = FileText(strangers + "/actor.key");
  const auto coordinator = LoadKeys(key("coordinator"));
  text.erase(text.find("coordinator = "));
  std::ofstream(strangers + "/actor.key")
      << text << "coordinator = \"" << KeyText((*coordinator)->public_key) << "\"\n";
  const std::string readable = folder() + "/readable.key";
  fs::copy_file(key(), readable);
  ASSERT_EQ(chmod(readable.c_str(), 0644), 0);
  struct Case {
    std::string key, says, launcher_says;
  };
  const Case cases[] = {
      {"", "requires a key", "has no key"},
      {strangers + "/actor.key", "does not allow our public key", "/keys/allowed"},
      {strangers + "/evaluator.key", "is a key of the role evaluator", ""},
      {readable, "chmod 600", ""},
      {folder() + "/missing.key", "no such file", ""},
  };
  for (const Case& c : cases) {
    const auto join = Start(JoinWords("2", "join", c.key));
    EXPECT_NE(join->Wait(), 0);
    EXPECT_NE(join->output().find(c.says), std::string::npos) << join->output();
    EXPECT_TRUE(Await([&] { return LauncherLog().find(c.launcher_says) != std::string::npos; }))
        << c.launcher_says << "\n"
        << LauncherLog();
  }
  EXPECT_EQ(Actors(), 1);
  Stop(troop.get());
}

// A key is what the coordinator's list says, not what its file says.
TEST_F(JoinTest, RejectsForgedRoleInKeyFile) {
  const auto troop = Start(ListenWords());
  std::string text = FileText(key());
  text.replace(text.find("\"actor\""), 7, "\"learner\"");
  const std::string forged = folder() + "/forged.key";
  std::ofstream(forged) << text;
  ASSERT_EQ(chmod(forged.c_str(), 0600), 0);
  const auto role = Start({"role", "learner", "--coordinator", Address(), "--key", forged});
  EXPECT_EQ(role->Wait(), 2) << role->output();
  EXPECT_NE(role->output().find("a key of the role actor can't register another role"),
            std::string::npos)
      << role->output();
  Stop(troop.get());
}

TEST_F(JoinTest, RemoteListeningRequiresKeys) {
  const auto refused = Train({"fleet.listen=tcp://10.9.8.7:7701"});
  EXPECT_EQ(refused->Wait(), 2) << refused->output();
  EXPECT_NE(refused->output().find("--insecure"), std::string::npos) << refused->output();
  EXPECT_FALSE(fs::exists(run() + "/config.toml"));
  const auto replay = Start({"replay", config(), "replay.listen=tcp://10.9.8.7:7701"});
  EXPECT_EQ(replay->Wait(), 2) << replay->output();
  EXPECT_NE(replay->output().find("--insecure"), std::string::npos) << replay->output();
  const auto keyless = Train({"fleet.listen=tcp://127.0.0.2:0", "security.keys=" + folder()});
  EXPECT_EQ(keyless->Wait(), 2) << keyless->output();
  EXPECT_NE(keyless->output().find("troop keygen"), std::string::npos) << keyless->output();
}

TEST_F(JoinTest, TwoMachinesPlayOneRun) {
  const TwoMachines machines;
  if (!machines.ok()) GTEST_SKIP() << "network namespaces need root and iproute2";
  Troop train(ListenWords("10.77.0.1"), folder(), {}, machines.On(0));
  Troop join(JoinWords("2", "join", key()), folder(), {}, machines.On(1));
  EXPECT_TRUE(Await([&] { return Actors(machines.On(0)) == 3; })) << join.output() << LauncherLog();
  // The cable is out until they count as gone; then it is in again, and they come back.
  machines.Cable(false);
  EXPECT_TRUE(Await([&] {
    return LauncherLog().find("left: its connection ended") != std::string::npos;
  })) << LauncherLog();
  machines.Cable(true);
  EXPECT_TRUE(Await([&] { return Actors(machines.On(0)) == 3; })) << join.output() << LauncherLog();
  Stop(&train);
  EXPECT_EQ(join.Wait(), 0) << join.output();
}

}  // namespace
}  // namespace troop
