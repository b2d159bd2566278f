#include "core/failpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

// What becomes of a process that reaches a place `times` times with that order: its exit code, or
// 128 + the signal that ended it.
int EndOf(const std::string& order, int times) {
  const pid_t process = fork();
  if (process == 0) {
    setenv("TROOP_FAILPOINT", order.c_str(), 1);
    RearmFailpoint();
    for (int i = 0; i < times; ++i) {
      Reach(Failpoint::kDiskHalf);
      Reach(Failpoint::kDiskSynced);
    }
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(FailpointTest, EveryNameIsItsOwnAndMeansItsPlace) {
  std::set<std::string> names;
  int place = 0;
  for (const std::string_view name : FailpointNames()) {
    names.emplace(name);
    const auto order = ParseFailpoint(name);
    ASSERT_TRUE(order.ok()) << name;
    EXPECT_EQ(int(order->at), place++) << name;
  }
  EXPECT_EQ(names.size(), FailpointNames().size());
  EXPECT_EQ(ParseFailpoint("checkpoint.begin")->at, Failpoint::kCheckpointBegin);
  EXPECT_EQ(ParseFailpoint("evaluator.step")->at, Failpoint::kEvaluatorStep);
}

TEST(FailpointTest, AnOrderHasItsDefaultsAndItsParts) {
  const auto plain = ParseFailpoint("disk.half");
  EXPECT_EQ(plain->n, 1);
  EXPECT_FALSE(plain->hang);
  EXPECT_EQ(plain->file, "");
  const auto full = ParseFailpoint("disk.half:12:hang:/a:b/c");
  EXPECT_EQ(full->n, 12);
  EXPECT_TRUE(full->hang);
  EXPECT_EQ(full->file, "/a:b/c");
}

TEST(FailpointTest, AWrongOrderIsRefusedWithAllNames) {
  for (const char* wrong : {"", "disk.halb", "disk.half:0", "disk.half:x", "disk.half:1:stop"}) {
    const auto order = ParseFailpoint(wrong);
    ASSERT_FALSE(order.ok()) << wrong;
    for (const std::string_view name : FailpointNames()) {
      EXPECT_NE(order.status().message().find(name), std::string::npos) << wrong;
    }
  }
}

TEST(FailpointTest, KillsAtThatTimeOfThatPlaceOnly) {
  EXPECT_EQ(EndOf("", 5), 0);
  EXPECT_EQ(EndOf("disk.half:3", 2), 0);
  EXPECT_EQ(EndOf("disk.half:3", 3), 128 + SIGKILL);
  EXPECT_EQ(EndOf("disk.renamed", 3), 0);
  EXPECT_EQ(EndOf("disk.halb", 1), 128 + SIGABRT);
}

TEST(FailpointTest, WithAFileOnlyTheFirstProcessIsHit) {
  const TempFolder temp;
  const std::string order = "disk.half:1:kill:" + temp.path() + "/hit";
  EXPECT_EQ(EndOf(order, 1), 128 + SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(temp.path() + "/hit"));
  EXPECT_EQ(EndOf(order, 5), 0);
}

}  // namespace
}  // namespace troop
