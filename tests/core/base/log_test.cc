#include "core/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// The process's log, back at standard error when the test ends.
class LogTest : public testing::Test {
 protected:
  ~LogTest() override { InitLog({}); }
  const TempFolder folder_;
  const std::string file_ = folder_.path() + "/logs/actor-3.log";
};

TEST_F(LogTest, LineHoldsTimeLevelRoleAndMessage) {
  InitLog({.role = "actor-3", .file = file_});
  LogInfo("{} steps, {{}}", 7);
  LogWarning("slow");
  LogError("{}", "a {} in the text is only text");
  const auto lines = Lines(file_);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(
      lines[0],
      MatchesRegex("20[0-9][0-9]-[0-9]+-[0-9]+ [0-9:]+\\.[0-9]+ I actor-3: 7 steps, \\{\\}"));
  EXPECT_THAT(lines[1], HasSubstr(" W actor-3: slow"));
  EXPECT_THAT(lines[2], HasSubstr(" E actor-3: a {} in the text is only text"));
}

TEST_F(LogTest, OmitsLinesBelowLevel) {
  InitLog({.role = "r", .file = file_, .level = LogLevel::kWarning});
  LogDebug("no");
  LogInfo("no");
  LogWarning("yes");
  EXPECT_EQ(Lines(file_).size(), 1u);
}

TEST_F(LogTest, AppendsToExistingFile) {
  for (int i = 0; i < 2; ++i) {
    InitLog({.role = "r", .file = file_});
    LogInfo("part {}", i);
  }
  EXPECT_EQ(Lines(file_).size(), 2u);
}

TEST_F(LogTest, FallsBackToStandardErrorWhenFileIsUnwritable) {
  testing::internal::CaptureStderr();
  InitLog({.role = "r", .file = "/proc/no/such/file"});
  LogInfo("still here");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("still here"));
}

TEST_F(LogTest, ThreadsDoNotInterleaveLines) {
  InitLog({.role = "r", .file = file_});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) LogInfo("{}", std::string(100, 'x'));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto lines = Lines(file_);
  EXPECT_EQ(lines.size(), 200u);
  for (const std::string& line : lines)
    EXPECT_THAT(line, testing::EndsWith("r: " + std::string(100, 'x')));
}

}  // namespace
}  // namespace troop
