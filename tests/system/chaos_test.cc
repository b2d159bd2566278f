// Roles that are stopped, that hang, that return too late, and that are killed at random: the run
// continues to exactly its steps, and leaves no process or file.

#include <cstdlib>
#include <map>
#include <random>

#include "core/storage/storage.h"
#include "learners/checkpoint.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRoles[] = {"actor", "replay", "learner", "paramserver", "evaluator"};

class ChaosTest : public SystemTest {
 protected:
  // Longer than the rest of a test takes, also where the machine is busy.
  static constexpr int kSteps = 40003;

  std::unique_ptr<Troop> TrainSteps(std::vector<std::string> overrides,
                                    const std::vector<std::string>& environment = {}) const {
    overrides.push_back("run.total_steps=" + std::to_string(kSteps));
    overrides.push_back("fleet.restarts_max=1000");
    overrides.push_back("fleet.backoff_max_s=0.2");
    return Start(TrainWords(overrides), environment);
  }
  std::string RoleLog(const std::string& role) const {
    return FileText(run() + "/logs/" + role + "-0.log");
  }
  bool AwaitGone(pid_t process) const {
    return Await([&] { return CommandLine(process).empty(); });
  }
  static std::set<std::string> SharedMemory() {
    std::set<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it("/dev/shm", error), end; !error && it != end;
         it.increment(error)) {
      const std::string name = it->path().filename();
      if (name.find("troop") != name.npos) names.insert(name);
    }
    return names;
  }
  // No process, socket, lock or shared memory of a run that has ended.
  void ExpectNothingLeft(const std::string& coordinator) const {
    EXPECT_TRUE(Await([&] { return RoleProcesses(coordinator).empty(); }, 10));
    EXPECT_FALSE(SocketFolderLeft());
    EXPECT_EQ(SharedMemory(), std::set<std::string>());
    const auto storage = MakeDiskStorage(run());
    EXPECT_TRUE((*storage)->Lock("lock", "a test").ok());
  }
};

class StoppedRoleTest : public ChaosTest, public testing::WithParamInterface<const char*> {};

TEST_P(StoppedRoleTest, IsDetectedReplacedAndRunTakesExactSteps) {
  const std::string role = GetParam();
  const auto troop = TrainSteps({"fleet.stall_timeout_s=2", "fleet.heartbeat_timeout_s=0.5"});
  const pid_t process = AwaitFirst(role);
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  SendSignal(process, SIGSTOP);
  const std::string coordinator = Coordinator();
  EXPECT_TRUE(AwaitGone(process)) << LauncherLog();
  ExpectDone(troop.get(), kSteps);
  const std::string log = LauncherLog();
  EXPECT_NE(log.find(role + "-0 ended (killed by signal 9"), log.npos) << log;
  EXPECT_NE(log.find("no progress for"), log.npos) << log;
  // Noticed long before, too: as down or as hung, whichever heartbeat is missed first.
  EXPECT_TRUE(log.find(role + "-0 disconnected") != log.npos ||
              log.find(role + "-0 hangs") != log.npos)
      << log;
  ExpectNothingLeft(coordinator);
}

INSTANTIATE_TEST_SUITE_P(Roles, StoppedRoleTest, testing::ValuesIn(kRoles),
                         [](const auto& info) { return std::string(info.param); });

class ReturningRoleTest : public ChaosTest, public testing::WithParamInterface<const char*> {
 protected:
  // True if the coordinator, the replay or the parameter server, whichever the role called first,
  // fenced it.
  static bool SaysFenced(const std::string& log) {
    return log.find("was replaced by incarnation") != log.npos ||
           log.find("it was replaced") != log.npos;
  }
};

// Stopped where its launcher can't end it: another process takes its place, as on another machine,
// and then the first one comes back.
TEST_P(ReturningRoleTest, IsFencedByIncarnationAndEndsWithMessage) {
  const std::string role = GetParam();
  const auto troop = TrainSteps({"fleet.stall_timeout_s=300", "fleet.heartbeat_timeout_s=0.5"});
  const pid_t process = AwaitFirst(role);
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  const std::string coordinator = Coordinator();
  SendSignal(process, SIGSTOP);
  const auto other = Start({"role", role, "--index", "0", "--coordinator", coordinator});
  const std::string joined = "process " + std::to_string(other->process());
  ASSERT_TRUE(Await([&] { return LauncherLog().find(joined) != std::string::npos; }))
      << LauncherLog() << other->output();
  // A place where others look for a service is not given up while its holder lives: there the other
  // is refused. Elsewhere it plays on.
  const bool service = role == "replay" || role == "paramserver";
  if (service) {
    EXPECT_EQ(other->Wait(), 3) << other->output();
    EXPECT_NE(other->output().find("in use"), std::string::npos) << other->output();
  }
  SendSignal(process, SIGCONT);
  EXPECT_TRUE(AwaitGone(process)) << LauncherLog() << RoleLog(role);
  EXPECT_TRUE(SaysFenced(RoleLog(role))) << RoleLog(role);
  EXPECT_TRUE(Await([&] { return SaysFenced(LauncherLog()); })) << LauncherLog();
  if (!service) {  // its launcher starts it again, which fences the other in turn
    EXPECT_EQ(other->Wait(), 1) << other->output();
    EXPECT_TRUE(SaysFenced(other->output())) << other->output();
  }
  ExpectDone(troop.get(), kSteps);
  ExpectNothingLeft(coordinator);
}

INSTANTIATE_TEST_SUITE_P(Roles, ReturningRoleTest, testing::ValuesIn(kRoles),
                         [](const auto& info) { return std::string(info.param); });

class HungEnvironmentTest : public ChaosTest, public testing::WithParamInterface<const char*> {};

// Its process lives and answers; only its node does not go on.
TEST_P(HungEnvironmentTest, IsDetectedAndItsProcessReplaced) {
  const std::string role = GetParam(), hit = folder() + "/hit";
  const auto troop = TrainSteps({"fleet.stall_timeout_s=2", "fleet.heartbeat_timeout_s=0.5"},
                                {"TROOP_FAILPOINT=" + role + ".step:50:hang:" + hit});
  ExpectDone(troop.get(), kSteps);
  EXPECT_TRUE(fs::exists(hit));
  const std::string log = LauncherLog();
  const auto hangs = log.find("hangs: only its I/O thread responds");
  ASSERT_NE(hangs, log.npos) << log;
  EXPECT_NE(log.rfind(role + "-", hangs), log.npos) << log;
  EXPECT_NE(log.find("no progress for"), log.npos) << log;
}

INSTANTIATE_TEST_SUITE_P(Roles, HungEnvironmentTest, testing::Values("actor", "evaluator"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(ChaosTest, PausedLauncherDoesNotTakeRolesForHung) {
  const auto troop = TrainSteps({"fleet.stall_timeout_s=1", "fleet.heartbeat_timeout_s=0.5"});
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  SendSignal(troop->process(), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  SendSignal(troop->process(), SIGCONT);
  ExpectDone(troop.get(), kSteps);
  EXPECT_EQ(LauncherLog().find("no progress for"), std::string::npos) << LauncherLog();
}

// Regression: the launcher waited permanently for a member whose exit was not reported to it.
TEST_F(ChaosTest, InterruptDoesNotWaitForRemoteMemberThatDied) {
  const auto troop = TrainSteps({"fleet.stall_timeout_s=300", "fleet.shutdown_grace_s=1"});
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  const std::string coordinator = Coordinator();
  SendSignal(AwaitFirst("actor"), SIGSTOP);
  const auto other = Start({"role", "actor", "--index", "0", "--coordinator", coordinator});
  const std::string joined = "process " + std::to_string(other->process());
  ASSERT_TRUE(Await([&] { return LauncherLog().find(joined) != std::string::npos; }))
      << LauncherLog() << other->output();
  other->Signal(SIGKILL);
  EXPECT_EQ(other->Wait(), 128 + SIGKILL);
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130) << troop->output() << LauncherLog();
  ExpectNothingLeft(coordinator);
}

// Restarts at once in the same folder, repeatedly: leftovers of the killed launcher cause no
// failure.
TEST_F(ChaosTest, KilledLauncherLeavesNoProcessAndRestartsAtOnce) {
  const std::function<bool()> moments[] = {
      [&] { return fs::exists(run() + "/config.toml"); },
      [&] { return fs::exists(run() + "/run.json"); },
      [&] { return fs::exists(run() + "/logs/actor-1.log"); },
      [&] { return FileHas(run() + "/logs/learner-0.log", "joined"); },
      [&] { return Steps() > 0; },
      [&] { return AwaitCheckpoint(); },
  };
  for (const auto& moment : moments) {
    const auto troop = Train({"run.total_steps=100000000", "--overwrite"});
    ASSERT_TRUE(Await(moment)) << troop->output();
    troop->Signal(SIGKILL);
    ASSERT_EQ(troop->Wait(), 128 + SIGKILL) << troop->output();
    EXPECT_TRUE(Await([&] { return RoleProcesses(Coordinator()).empty(); }, 5));
  }
  const auto resumed = Start({"resume", run(), "run.total_steps=" + std::to_string(kSteps)});
  ExpectDone(resumed.get(), kSteps);
}

// kill -9 of roles, and of the launcher, at random moments. Runs follow one another until each role
// has died the requested number of times.
class RandomKillsTest : public ChaosTest {
 protected:
  using Counts = std::map<std::string, int>;

  // Goes on from the counts in the file that `state` names, if any, and keeps them there.
  void KillEach(int deaths, const std::string& state) {
    state_ = state;
    for (const char* role : kRoles) deaths_[role] = 0;
    deaths_["launcher"] = 0;
    std::ifstream file(state_);
    std::string role;
    for (int count = 0; file >> role >> count;) deaths_[role] = count;
    while (!Left(deaths).empty() && !HasFailure()) RunOnce(deaths);
  }

 private:
  std::vector<std::string> Left(int deaths) const {
    std::vector<std::string> left;
    for (const auto& [role, count] : deaths_) {
      if (count < deaths) left.push_back(role);
    }
    return left;
  }
  void NoteDeath(const std::string& role) {
    ++deaths_[role];
    if (state_.empty()) return;
    std::ofstream file(state_ + ".new");
    for (const auto& [name, count] : deaths_) file << name << " " << count << "\n";
    file.close();
    fs::rename(state_ + ".new", state_);
  }
  std::size_t Draw(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }

  std::unique_ptr<Troop> StartAgain() {
    // The next run clears away the sockets of the killed one, once they are older than a minute.
    for (const auto& entry : fs::directory_iterator(folder() + "/tmp")) {
      fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::hours(1));
    }
    const auto checkpoints = MakeDiskStorage(run());
    return NewestCheckpoint(checkpoints->get()).ok() ? Start({"resume", run()})
                                                     : TrainSteps({"--overwrite"});
  }

  void RunOnce(int deaths) {
    auto troop = TrainSteps({"--overwrite"});
    while (troop->Running()) {
      // Long enough, on the average, that the run gets on between two deaths.
      std::this_thread::sleep_for(std::chrono::milliseconds(Draw(800)));
      const std::vector<std::string> left = Left(deaths);
      if (left.empty()) break;
      if (!fs::exists(run() + "/run.json")) continue;
      const std::string role = left[Draw(left.size())];
      if (role == "launcher") {
        troop->Signal(SIGKILL);
        if (troop->Wait() == 0) break;  // it was just at its end
        NoteDeath(role);
        EXPECT_TRUE(Await([&] { return RoleProcesses(Coordinator()).empty(); }, 10));
        troop = StartAgain();
        continue;
      }
      const auto found = RoleProcesses(Coordinator(), role);
      if (found.empty()) continue;
      SendSignal(found[Draw(found.size())], SIGKILL);
      NoteDeath(role);
    }
    const std::string coordinator = Coordinator();
    ExpectDone(troop.get(), kSteps);
    ExpectNothingLeft(coordinator);
  }

  std::mt19937 random_{std::random_device{}()};
  std::string state_;
  Counts deaths_;
};

TEST_F(RandomKillsTest, SurvivesKillOfEachRole) { KillEach(1, ""); }

// TROOP_CHAOS_STATE names a file that keeps the count, so that an interrupted test continues from
// there. TROOP_CHAOS_DEATHS: number of deaths of each role (100).
TEST_F(RandomKillsTest, SlowSurvivesHundredKillsOfEachRole) {
  const char* const state = std::getenv("TROOP_CHAOS_STATE");
  const char* const deaths = std::getenv("TROOP_CHAOS_DEATHS");
  KillEach(deaths == nullptr ? 100 : std::atoi(deaths), state == nullptr ? "" : state);
}

}  // namespace
}  // namespace troop
