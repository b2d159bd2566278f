// Spare processes, which replace a Python process that dies (subproc_vector_env.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/envs/process_vector_env_fixture.h"

namespace troop {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// Child processes of this process, zombies included.
std::vector<pid_t> Children() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = StatOf(pid_t(std::stol(pid)));
    const std::size_t name = stat.rfind(')');
    if (name == std::string::npos) continue;
    if (stat.substr(name + 4).starts_with(fmt::format("{} ", getpid()))) {
      found.push_back(pid_t(std::stol(pid)));
    }
  }
  return found;
}

class SpareProcessTest : public ProcessVectorEnvTest {
 protected:
  void SetUp() override {
    ProcessVectorEnvTest::SetUp();
    setenv("TROOP_TEST_IMPORTS", File("imports").c_str(), 1);
    Option("pids", File("pids"));
  }
  void TearDown() override { unsetenv("TROOP_TEST_IMPORTS"); }
  // The processes that loaded the module, in order, once they are so many.
  std::vector<pid_t> Imports(std::size_t count) const {
    for (int i = 0; i < 6000 && Pids("imports").size() < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return Pids("imports");
  }
  // Kills the process that made the last environments, which costs both rows their episodes.
  void KillPlayer(VectorEnv* env) {
    const pid_t player = Pids().back();
    ASSERT_EQ(kill(player, SIGKILL), 0);
    ASSERT_TRUE(GoneSoon(player));
    const std::vector<EnvFault> faults = StepToFaults(env);
    ASSERT_THAT(faults, SizeIs(2));
    EXPECT_EQ(faults[0].what, "ended by signal 9 (Killed)");
  }
};

TEST_F(SpareProcessTest, SpareProcessReplacesNextThatDies) {
  for (const bool wait : {false, true}) {
    for (const char* name : {"pids", "imports"}) std::filesystem::remove(File(name));
    options_.wait = wait;
    auto env = Open(2);
    ASSERT_NE(env, nullptr);
    for (int t = 0; t < 10 && !HasFailure(); ++t) Step(env.get());
    EXPECT_THAT(Children(), SizeIs(1)) << "one without a fault pays for no second process";
    ASSERT_NO_FATAL_FAILURE(KillPlayer(env.get()));
    for (std::size_t n = 3; n < 5 && !HasFailure(); ++n) {
      EXPECT_THAT(Children(), SizeIs(2));
      ASSERT_THAT(Imports(n), SizeIs(n));
      const pid_t spare = Imports(n).back();
      EXPECT_THAT(Pids(), Not(Contains(spare))) << "it makes nothing before it is wanted";
      ASSERT_NO_FATAL_FAILURE(KillPlayer(env.get()));
      EXPECT_EQ(Pids().back(), spare);
      for (int t = 0; t < 10 && !HasFailure(); ++t) {
        Step(env.get());
        EXPECT_THAT(env->faults(), IsEmpty());
      }
    }
    env.reset();
    EXPECT_THAT(Children(), IsEmpty());
  }
}

TEST_F(SpareProcessTest, DoesNotUseDeadSpareProcess) {
  const auto env = Open(2);
  ASSERT_NE(env, nullptr);
  ASSERT_NO_FATAL_FAILURE(KillPlayer(env.get()));
  ASSERT_THAT(Imports(3), SizeIs(3));
  const pid_t spare = Imports(3).back();
  ASSERT_EQ(kill(spare, SIGKILL), 0);
  ASSERT_TRUE(GoneSoon(spare));
  Step(env.get());
  EXPECT_THAT(env->faults(), IsEmpty()) << "it played nothing";
  ASSERT_NO_FATAL_FAILURE(KillPlayer(env.get()));
  EXPECT_THAT(Imports(5), SizeIs(5)) << "of the next player, and of the next spare one";
  for (int t = 0; t < 10 && !HasFailure(); ++t) Step(env.get());
  EXPECT_THAT(Children(), SizeIs(2));
}

TEST_F(SpareProcessTest, RecoversFromTwoDeathsWithOneSpare) {
  options_.processes = 2;
  const auto env = Open(2);
  ASSERT_NE(env, nullptr);
  for (int round = 0; round < 2 && !HasFailure(); ++round) {
    const std::vector<pid_t> players = {Pids().end()[-2], Pids().end()[-1]};
    for (const pid_t player : players) ASSERT_EQ(kill(player, SIGKILL), 0);
    for (const pid_t player : players) ASSERT_TRUE(GoneSoon(player));
    EXPECT_THAT(StepToFaults(env.get()), SizeIs(2));
    // At first both begin from nothing and a spare one comes to them; then one does, and so on.
    EXPECT_THAT(Children(), SizeIs(3));
    for (int t = 0; t < 10 && !HasFailure(); ++t) Step(env.get());
  }
}

TEST_F(SpareProcessTest, HungSpareProcessDiesWithItsOwner) {
  setenv("TROOP_TEST_IMPORTS", File("imports:3").c_str(), 1);
  const pid_t owner = fork();
  if (owner == 0) {
    const auto env = Open(2);
    if (env != nullptr) KillPlayer(env.get());
    if (HasFailure()) _exit(1);
    pause();
  }
  EXPECT_THAT(Imports(3), SizeIs(3));
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  for (const pid_t pid : Pids("imports")) EXPECT_TRUE(GoneSoon(pid)) << pid;
  std::filesystem::remove(File("imports"));
  std::filesystem::remove(File("pids"));
  auto env = Open(2);  // and with its vector
  ASSERT_NE(env, nullptr);
  ASSERT_NO_FATAL_FAILURE(KillPlayer(env.get()));
  EXPECT_THAT(Imports(3), SizeIs(3));
  env.reset();
  EXPECT_THAT(Children(), IsEmpty());
}

}  // namespace
}  // namespace troop
