#include "fleet/launcher/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "fleet/launcher/subprocess.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

constexpr FleetRole kRole{Role::kActor, 0};

// Supervises one small script in place of `troop`. Time is the test's, but processes end when they
// end: conditions are polled.
class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    config_.fleet.backoff_initial_s = 1;
    config_.fleet.backoff_max_s = 4;
    config_.fleet.restarts_max = 4;
    config_.fleet.restart_window_s = 1000;
  }
  void Start(const std::string& script) {
    const std::string program = temp_.path() + "/program";
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    chmod(program.c_str(), 0755);
    supervisor_ = std::make_unique<Supervisor>(Supervisor::Options{.executable = program,
                                                                   .coordinator = "ipc:///nowhere",
                                                                   .log_folder = temp_.path(),
                                                                   .config = config_},
                                               std::vector<FleetRole>{role_});
  }
  void StartSpare(const std::string& script, std::vector<FleetRole> roles) {
    Start(script);
    supervisor_ =
        std::make_unique<Supervisor>(Supervisor::Options{.executable = temp_.path() + "/program",
                                                         .coordinator = "ipc:///nowhere",
                                                         .log_folder = temp_.path(),
                                                         .config = config_,
                                                         .spare = [](FleetRole) { return true; }},
                                     std::move(roles));
  }
  // Supervises the program of Start. The first forks have these outcomes; all later ones fail.
  void StartWithForks(std::vector<bool> outcomes) {
    const auto spawn = [this, outcomes = std::move(outcomes)](
                           const std::string& program, std::vector<std::string> words,
                           const std::string& log) -> Result<pid_t> {
      const std::size_t fork = forks_++;
      if (fork < outcomes.size() && outcomes[fork]) {
        return StartChild(program, std::move(words), log, SIGKILL);
      }
      return ResourceExhausted("fork failed: no process is left");
    };
    supervisor_ =
        std::make_unique<Supervisor>(Supervisor::Options{.executable = temp_.path() + "/program",
                                                         .coordinator = "ipc:///nowhere",
                                                         .log_folder = temp_.path(),
                                                         .config = config_,
                                                         .spawn = spawn},
                                     std::vector<FleetRole>{role_});
  }
  std::vector<Supervisor::Exit> Tick() {
    return supervisor_->Tick(now_, [this](FleetRole) { return needed_; });
  }
  // Ticks at the same virtual time until a process ended.
  Supervisor::Exit AwaitExit() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      const auto exits = Tick();
      if (!exits.empty()) return exits[0];
      std::this_thread::yield();
    }
    ADD_FAILURE() << "no process ended";
    return {};
  }
  bool Await(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
  std::string Log() {
    std::ostringstream text;
    text << std::ifstream(temp_.path() + "/actor-0.log").rdbuf();
    return text.str();
  }

  TempFolder temp_;
  Config config_;
  FleetRole role_ = kRole;
  std::unique_ptr<Supervisor> supervisor_;
  Time now_{Seconds(100)};
  std::size_t forks_ = 0;
  bool needed_ = true;
};

TEST_F(SupervisorTest, PassesRoleArgumentsAndKeepsLog) {
  Start("echo \"$@\"");
  const Supervisor::Exit exit = AwaitExit();
  EXPECT_EQ(exit.role, kRole);
  EXPECT_EQ(Log(), "role actor --index 0 --coordinator ipc:///nowhere --heartbeat-timeout 1.5\n");
}

// A single fork that failed with EAGAIN used to end the whole run.
TEST_F(SupervisorTest, FailedForkIsRetriedWithBackoff) {
  Start("exec sleep 100");
  StartWithForks({false, false, true});
  for (const double wait : {1.0, 2.0}) {
    const auto exits = Tick();
    ASSERT_EQ(exits.size(), 1u);
    EXPECT_EQ(exits[0].role, kRole);
    EXPECT_EQ(exits[0].process, 0);
    EXPECT_TRUE(exits[0].failed);
    EXPECT_EQ(exits[0].reason, "fork failed: no process is left");
    EXPECT_TRUE(supervisor_->status().ok());
    now_ += Seconds(wait) - Milliseconds(1);
    EXPECT_TRUE(Tick().empty());
    now_ += Milliseconds(1);
  }
  EXPECT_TRUE(Tick().empty());
  EXPECT_EQ(supervisor_->alive(), 1);
  EXPECT_EQ(supervisor_->restarts(), 2);
}

TEST_F(SupervisorTest, ForksThatAlwaysFailEndTheRunAfterTheLimit) {
  StartWithForks({});
  for (int failures = 1; failures <= 4; ++failures) {
    EXPECT_EQ(Tick().size(), 1u);
    EXPECT_TRUE(supervisor_->status().ok());
    now_ += Seconds(4);
  }
  EXPECT_EQ(Tick().size(), 1u);
  EXPECT_EQ(supervisor_->status().code(), Code::kAborted);
  EXPECT_NE(supervisor_->status().message().find("failed 5 times in a row"), std::string::npos);
  now_ += Seconds(100);
  EXPECT_TRUE(Tick().empty());  // no further start
}

TEST_F(SupervisorTest, RestartsWithBackoffUpToLimitAndReportsReason) {
  Start("echo something broke; exit 3");
  // Failures 1 … 4 wait 1, 2, 4, 4 seconds; the fifth is one too many.
  for (const double wait : {1.0, 2.0, 4.0, 4.0}) {
    const Supervisor::Exit exit = AwaitExit();
    EXPECT_EQ(exit.reason, "exit code 3");
    EXPECT_FALSE(exit.orderly);
    EXPECT_TRUE(supervisor_->status().ok());
    now_ += Seconds(wait) - Milliseconds(1);
    Tick();
    EXPECT_EQ(supervisor_->alive(), 0);
    now_ += Milliseconds(1);
    Tick();
    EXPECT_EQ(supervisor_->alive(), 1);
  }
  AwaitExit();
  EXPECT_EQ(supervisor_->restarts(), 4);
  const std::string why = supervisor_->status().message();
  for (const char* part : {"actor-0", "5 times", "fleet.restarts_max = 4", "exit code 3",
                           "something broke", "actor-0.log"}) {
    EXPECT_NE(why.find(part), std::string::npos) << why;
  }
  now_ += Seconds(100);
  Tick();
  EXPECT_EQ(supervisor_->alive(), 0);
}

TEST_F(SupervisorTest, ResetsFailuresAfterWorkingForWindow) {
  config_.fleet.restart_window_s = 3;
  Start("exit 1");
  for (int i = 0; i < 12; ++i) {
    Tick();  // starts it
    now_ += Seconds(3);
    AwaitExit();
    now_ += Seconds(1);  // the first back-off, each time
  }
  EXPECT_TRUE(supervisor_->status().ok());
}

// Back-off let only 13 failures into the window of 60 s, with a limit of 20: it never gave up.
TEST_F(SupervisorTest, GivesUpDespiteLongBackoff) {
  config_.fleet = {};
  Start("exit 1");
  int failures = 0;
  while (supervisor_->status().ok() && failures < 100) {
    AwaitExit();
    ++failures;
    now_ += Seconds(config_.fleet.backoff_max_s);
  }
  EXPECT_EQ(failures, config_.fleet.restarts_max + 1);
}

TEST_F(SupervisorTest, HungTimeDoesNotCountAsWork) {
  config_.fleet.restarts_max = 2;
  config_.fleet.restart_window_s = 60;
  config_.fleet.stall_timeout_s = 100;
  config_.fleet.backoff_max_s = 1;
  Start("exec sleep 100");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(supervisor_->status().ok());
    Tick();
    now_ += Seconds(110);
    supervisor_->Kill(kRole, supervisor_->running().at(0).process, "it hangs");
    AwaitExit();
    now_ += Seconds(1);
  }
  EXPECT_FALSE(supervisor_->status().ok());
}

// It was started again and again, with the same config.
TEST_F(SupervisorTest, EndsRunAtOnceOnConfigErrorOrDamage) {
  for (const std::string code : {"2", "4"}) {
    Start("echo saved with another network; exit " + code);
    AwaitExit();
    EXPECT_EQ(supervisor_->restarts(), 0);
    const std::string why = supervisor_->status().message();
    for (const std::string& part :
         {std::string("actor-0"), "exit code " + code, std::string("saved with another network"),
          std::string("actor-0.log")}) {
      EXPECT_NE(why.find(part), std::string::npos) << why;
    }
  }
  now_ += Seconds(100);
  Tick();
  EXPECT_EQ(supervisor_->alive(), 0);
}

// A damaged file was read 21 times in 145 s, and the run ended with another exit code.
TEST_F(SupervisorTest, EndsRunAsDataLossOnDamagedFile) {
  role_ = {Role::kParamServer, 0};
  Start("echo its checksum is wrong; exit 4");
  AwaitExit();
  EXPECT_EQ(supervisor_->restarts(), 0);
  EXPECT_EQ(supervisor_->status().code(), Code::kDataLoss);
  const std::string why = supervisor_->status().message();
  for (const char* part : {"paramserver-0 found a damaged file", "its checksum is wrong"}) {
    EXPECT_NE(why.find(part), std::string::npos) << why;
  }
}

TEST_F(SupervisorTest, EndsRunAtOnceWhenRoleGivesUp) {
  Start("echo the numbers went bad; exit 5");
  AwaitExit();
  EXPECT_EQ(supervisor_->restarts(), 0);
  const std::string why = supervisor_->status().message();
  for (const char* part : {"actor-0 gave up", "exit code 5", "the numbers went bad"}) {
    EXPECT_NE(why.find(part), std::string::npos) << why;
  }
  now_ += Seconds(100);
  Tick();
  EXPECT_EQ(supervisor_->alive(), 0);
}

// Regression: an external SIGTERM made a role exit orderly, and the run waited permanently for it.
TEST_F(SupervisorTest, RestartsNeededRoleAfterOrderlyExit) {
  Start("exit 0");
  EXPECT_TRUE(AwaitExit().orderly);
  now_ += Seconds(10);
  Tick();
  EXPECT_EQ(supervisor_->alive(), 1);
}

TEST_F(SupervisorTest, DoesNotRestartUnneededRole) {
  Start("exit 1");
  Tick();
  needed_ = false;
  AwaitExit();
  now_ += Seconds(100);
  Tick();
  EXPECT_EQ(supervisor_->alive(), 0);
  EXPECT_TRUE(supervisor_->status().ok());
}

TEST_F(SupervisorTest, KillReportsReasonAndSparesSuccessor) {
  Start("exec sleep 100");
  Tick();
  const auto running = supervisor_->running();
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].since, now_);
  supervisor_->Kill(kRole, running[0].process + 1, "of another process");
  supervisor_->Kill({Role::kActor, 1}, running[0].process, "of another role");
  supervisor_->Kill(kRole, running[0].process, "it hangs");
  const Supervisor::Exit exit = AwaitExit();
  EXPECT_EQ(exit.reason, "killed by signal 9 (Killed): it hangs");
}

TEST_F(SupervisorTest, IgnoresKillOfOtherProcessOrRole) {
  const std::string go = temp_.path() + "/go";
  Start("while [ ! -e " + go + " ]; do sleep 0.01; done; exit 3");
  Tick();
  const pid_t process = supervisor_->running().at(0).process;
  supervisor_->Kill(kRole, process + 1, "of the process before");
  supervisor_->Kill({Role::kActor, 1}, process, "of another role");
  std::ofstream(go) << "go";
  EXPECT_EQ(AwaitExit().reason, "exit code 3");
}

TEST_F(SupervisorTest, KillsChildrenOnDestruction) {
  Start("exec sleep 100");
  Tick();
  const pid_t process = supervisor_->running().at(0).process;
  supervisor_.reset();
  EXPECT_TRUE(Await([process] { return kill(process, 0) != 0; }));
}

TEST_F(SupervisorTest, TreatsMissingProgramAsFailure) {
  Start("exit 0");
  config_.fleet.restarts_max = 0;
  supervisor_ =
      std::make_unique<Supervisor>(Supervisor::Options{.executable = temp_.path() + "/missing",
                                                       .coordinator = "ipc:///nowhere",
                                                       .log_folder = temp_.path(),
                                                       .config = config_},
                                   std::vector<FleetRole>{kRole});
  EXPECT_EQ(AwaitExit().reason, "exit code 127");
  EXPECT_FALSE(supervisor_->status().ok());
}

TEST_F(SupervisorTest, SpareSlotIsRestartedAndNeverEndsRun) {
  StartSpare("exit 1", {kRole});
  for (int i = 0; i < 3 * int(config_.fleet.restarts_max); ++i) {
    EXPECT_EQ(AwaitExit().code, 1);
    now_ += Seconds(config_.fleet.backoff_max_s + 1);
  }
  EXPECT_TRUE(supervisor_->status().ok()) << supervisor_->status().message();
}

// The second slot is restarted until it, too, gives up: then none is left.
TEST_F(SupervisorTest, FailsWhenAllSpareSlotsGiveUp) {
  StartSpare(R"(case "$*" in *"--index 0"*) echo the first broke; exit 5;; esac
test -e "$0.broken" || exit 1
echo the second broke
exit 5)",
             {kRole, {Role::kActor, 1}});
  std::multiset<int> codes;
  const auto await = [&](std::size_t failed, std::size_t gave_up) {
    return Await([&] {
      now_ += Seconds(config_.fleet.backoff_max_s + 1);
      for (const Supervisor::Exit& exit : Tick()) codes.insert(exit.code);
      return codes.count(1) >= failed && codes.count(5) == gave_up;
    });
  };
  EXPECT_TRUE(await(3, 1));
  EXPECT_TRUE(supervisor_->status().ok()) << supervisor_->status().message();
  std::ofstream(temp_.path() + "/program.broken") << "";
  EXPECT_TRUE(await(3, 2));
  EXPECT_EQ(supervisor_->permanent_code(), 5);
  EXPECT_THAT(supervisor_->status().message(), testing::HasSubstr("the second broke"));
  now_ += Seconds(100);
  Tick();
  EXPECT_EQ(supervisor_->alive(), 0);
}

TEST_F(SupervisorTest, ReadsPhaseFromLastLogLine) {
  const std::string go = temp_.path() + "/go";
  role_ = {Role::kReplay, 0};
  Start(
      "echo '2026-11-26 10:05:58.905 I replay-0: restoring: 1 of 9 segments, 4 s so far'\n"
      "while [ ! -e " +
      go +
      " ]; do sleep 0.01; done\n"
      "echo '2026-11-26 10:06:02.905 I replay-0: ready'\nexec sleep 60");
  EXPECT_TRUE(Await([&] {
    Tick();
    return supervisor_->PhaseText() == "; replay-0 is restoring: 1 of 9 segments, 4 s so far";
  })) << supervisor_->PhaseText();
  std::ofstream(go) << "go";
  EXPECT_TRUE(Await([&] { return supervisor_->PhaseText().empty(); }));
}

TEST_F(SupervisorTest, WrappedStartGetsArgumentsAndOwnLog) {
  Start("exit 1");
  Supervisor::Options options{.executable = temp_.path() + "/program",
                              .coordinator = "ipc:///nowhere",
                              .log_folder = temp_.path(),
                              .config = config_,
                              .wrap =
                                  [](FleetRole, std::string* program, auto* words) {
                                    words->insert(words->begin(), "echo");
                                    *program = "/bin/echo";
                                  },
                              .log_name = [](FleetRole) { return "actors-n7"; }};
  supervisor_ = std::make_unique<Supervisor>(options, std::vector<FleetRole>{kRole});
  EXPECT_TRUE(AwaitExit().orderly);
  EXPECT_NE(supervisor_->LogTail(kRole).find("troop role actor --index 0"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(temp_.path() + "/actors-n7.log"));
}

}  // namespace
}  // namespace troop
