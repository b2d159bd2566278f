// Effects of a cluster on pods: addresses that change for the same name, names without an address
// yet, SIGTERM and SIGKILL. Real processes; each machine has a separate network and /etc/hosts.
#include <cstdlib>

#include "tests/system/troop_process.h"
#include "tests/system/two_machines.h"

namespace troop {
namespace {

class PodsTest : public SystemTest {
 protected:
  void SetUp() override {
    if (!machines_.ok()) GTEST_SKIP() << "network namespaces need root and iproute2";
    const auto made = Start({"keygen", folder() + "/keys"});
    ASSERT_EQ(made->Wait(), 0) << made->output();
    NameHas("");
  }
  std::string hosts() const { return folder() + "/hosts"; }
  // In place: the file is mounted.
  void NameHas(const std::string& address) const {
    std::ofstream file(hosts());
    file << "127.0.0.1 localhost\n";
    if (!address.empty()) file << address << " run-coordinator-0.run\n";
  }
  // Starts the coordinator as its pod does.
  std::unique_ptr<Troop> Coordinate(const std::string& address, const std::string& steps) const {
    return std::make_unique<Troop>(
        TrainWords({"--continue", "fleet.listen=tcp://" + address + ":7701", "fleet.actors=1",
                    "fleet.external_roles=[\"actor\"]", "security.keys=" + folder() + "/keys",
                    "run.total_steps=" + steps}),
        folder(), std::vector<std::string>(), machines_.On(0));
  }
  // Starts actors as their pod does.
  std::unique_ptr<Troop> Join(const std::string& wait_s) const {
    return std::make_unique<Troop>(
        std::vector<std::string>{"join", "tcp://run-coordinator-0.run:7701", "--key",
                                 folder() + "/keys/actor.key", "--wait", wait_s, "--rejoin",
                                 "--logs", folder() + "/join", "--health", health()},
        folder(), std::vector<std::string>(), machines_.On(1, hosts()));
  }
  // Starts a pod of another role on machine 0, whose address is the pod's. The other machine's
  // address is then the coordinator's.
  std::unique_ptr<Troop> JoinAs(const std::string& role, const std::string& address) const {
    return std::make_unique<Troop>(
        std::vector<std::string>{"join", "tcp://run-coordinator-0.run:7701", "--role", role,
                                 "--key", folder() + "/keys/" + role + ".key", "--wait", "60",
                                 "--advertise-host", address, "--logs", folder() + "/" + role},
        folder(), std::vector<std::string>(), machines_.On(0, hosts()));
  }
  std::string health() const { return folder() + "/health"; }
  bool Healthy(const std::vector<std::string>& flags = {}) const {
    std::vector<std::string> words{"health", health()};
    words.insert(words.end(), flags.begin(), flags.end());
    return Start(words)->Wait() == 0;
  }
  // Number of registered actors, queried on the coordinator's machine.
  int Actors() const {
    Troop status({"status", run(), "--json"}, folder(), {}, machines_.On(0));
    if (status.Wait() != 0) return -1;
    const auto view = ParseJson(status.output());
    const JsonValue* members = view.ok() ? view->Find("members") : nullptr;
    int actors = 0;
    for (std::size_t i = 0; members != nullptr && i < members->array.size(); ++i) {
      actors += members->array[i].String("role")->starts_with("actor-");
    }
    return actors;
  }
  bool JoinSays(const std::string& words) const {
    return FileHas(folder() + "/join/actor-0.log", words);
  }

  const TwoMachines machines_;
};

TEST_F(PodsTest, WaitsForUnresolvedName) {
  const auto impatient = Join("0.5");
  EXPECT_EQ(impatient->Wait(), 1);
  EXPECT_NE(impatient->output().find("can't resolve run-coordinator-0.run"), std::string::npos)
      << impatient->output();
  EXPECT_NE(impatient->output().find("gave up after 0.5 s"), std::string::npos)
      << impatient->output();

  const auto join = Join("60");
  EXPECT_TRUE(Await([&] { return join->output().find("trying again") != std::string::npos; }))
      << join->output();
  EXPECT_FALSE(Healthy());
  const auto troop = Coordinate("10.77.0.1", "1e9");
  EXPECT_TRUE(Await([&] { return Actors() == 0; })) << LauncherLog();
  EXPECT_TRUE(join->Running()) << join->output();
  NameHas("10.77.0.1");
  EXPECT_TRUE(Await([&] { return Actors() == 1; })) << join->output() << LauncherLog();
  EXPECT_TRUE(Await([&] { return Healthy({"--ready"}); }));
  EXPECT_EQ(join->output().find("trying again"), join->output().rfind("trying again"))
      << "once is enough";
}

// The first death is a node's, which says nothing; the second is the kubelet's, with time for a
// checkpoint.
TEST_F(PodsTest, FindsMovedCoordinatorByName) {
  NameHas("10.77.0.1");
  auto troop = Coordinate("10.77.0.1", "1e9");
  const auto join = Join("60");
  EXPECT_TRUE(Await([&] { return Actors() == 1; })) << join->output() << LauncherLog();
  ASSERT_TRUE(AwaitSteps(2000)) << LauncherLog();
  ASSERT_TRUE(AwaitCheckpoint());

  // Calls to the old address now get no answer at all, for minutes.
  ASSERT_TRUE(machines_.Move("10.77.0.1", "10.77.0.3"));
  EXPECT_TRUE(Await([&] { return JoinSays("run:7701: the peer is down"); }));
  troop->Signal(SIGKILL);
  ASSERT_EQ(troop->Wait(), 128 + SIGKILL);
  NameHas("10.77.0.3");
  troop = Coordinate("10.77.0.3", "1e9");
  EXPECT_TRUE(Await([&] { return Actors() == 1; })) << LauncherLog();
  EXPECT_TRUE(JoinSays("is not a member")) << "the same process asked the new one";
  EXPECT_TRUE(Healthy());

  ASSERT_TRUE(AwaitCheckpoint());
  troop->Signal(SIGTERM);
  ASSERT_EQ(troop->Wait(), 130) << troop->output();
  EXPECT_NE(troop->output().find("resume with"), std::string::npos) << troop->output();
  const std::int64_t steps = *Json(run() + "/result.json").Integer("steps");
  EXPECT_TRUE(Await([&] { return JoinSays("can be resumed"); })) << join->output();
  EXPECT_TRUE(join->Running()) << join->output();
  EXPECT_TRUE(Healthy()) << "a member that waits for its coordinator is healthy";

  ASSERT_TRUE(machines_.Move("10.77.0.3", "10.77.0.4"));
  NameHas("10.77.0.4");
  troop = Coordinate("10.77.0.4", std::to_string(steps + 30003));
  // The run may be over before the first answer of `troop status`.
  EXPECT_TRUE(Await([&] { return Actors() == 1 || !troop->Running(); }))
      << join->output() << LauncherLog();
  ExpectDone(troop.get(), steps + 30003);
  EXPECT_EQ(join->Wait(), 0) << join->output();
  // A pod that starts again behind the run's end, for whatever reason, has nothing to do.
  const auto again = Coordinate("10.77.0.4", std::to_string(steps + 30003));
  EXPECT_EQ(again->Wait(), 0);
  EXPECT_NE(again->output().find("is finished"), std::string::npos) << again->output();
}

// One has the time of its grace, and the other has not: the kubelet takes it away.
TEST_F(PodsTest, MovedLearnerAndReplayContinue) {
  NameHas("10.77.0.2");
  const Troop troop(TrainWords({"fleet.listen=tcp://10.77.0.2:7701", "fleet.actors=2",
                                "fleet.external_roles=[\"learner\", \"replay\"]",
                                "security.keys=" + folder() + "/keys", "checkpoint.every_s=1000",
                                "run.total_steps=1e9"}),
                    folder(), {}, machines_.On(1));
  auto learner = JoinAs("learner", "10.77.0.1"), replay = JoinAs("replay", "10.77.0.1");
  ASSERT_TRUE(AwaitSteps(2000)) << learner->output() << replay->output() << LauncherLog();
  learner->Signal(SIGTERM);
  EXPECT_EQ(learner->Wait(20), 0) << learner->output();
  EXPECT_TRUE(AwaitCheckpoint());
  replay->Signal(SIGKILL);
  replay->Wait();
  ASSERT_TRUE(machines_.Move("10.77.0.1", "10.77.0.3"));
  learner = JoinAs("learner", "10.77.0.3");
  replay = JoinAs("replay", "10.77.0.3");
  EXPECT_TRUE(Await([&] { return FileHas(folder() + "/learner/learner-0.log", "resumed from"); }))
      << learner->output() << LauncherLog();
  EXPECT_TRUE(AwaitSteps(Steps() + 2000)) << learner->output() << replay->output() << LauncherLog();
}

}  // namespace
}  // namespace troop
