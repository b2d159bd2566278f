#include "fleet/launcher/subprocess.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

TEST(RunProgramTest, ReturnsOutputAndExitCode) {
  const auto said = RunProgram({"sh", "-c", "echo out; echo err >&2; exit 3"}, Seconds(20));
  ASSERT_TRUE(said.ok()) << said.status().message();
  EXPECT_EQ(said->output, "out\nerr\n");
  EXPECT_EQ(said->code, 3);
  EXPECT_EQ(RunProgram({"sh", "-c", "kill -9 $$"}, Seconds(20))->code, 137);
}

TEST(RunProgramTest, PassesArgumentsLiterallyAndNamesMissingProgram) {
  EXPECT_EQ(RunProgram({"echo", "$HOME; ls", "'a b'"}, Seconds(20))->output, "$HOME; ls 'a b'\n");
  const auto none = RunProgram({"no-such-program-of-troop"}, Seconds(20));
  EXPECT_EQ(none.status().code(), Code::kNotFound);
  EXPECT_NE(none.status().message().find("no-such-program-of-troop"), std::string::npos);
}

TEST(RunProgramTest, KillsProgramAtDeadline) {
  const auto said = RunProgram({"sh", "-c", "echo begins; exec sleep 1000"}, Milliseconds(200));
  EXPECT_EQ(said.status().code(), Code::kDeadlineExceeded);
}

TEST(RunProgramTest, TruncatesLargeOutputWithoutBlocking) {
  const auto said = RunProgram({"head", "-c", "5000000", "/dev/zero"}, Seconds(20));
  ASSERT_TRUE(said.ok()) << said.status().message();
  EXPECT_EQ(said->code, 0);
  EXPECT_GE(said->output.size(), 1u << 20);
  EXPECT_LT(said->output.size(), (1u << 20) + 5000);
}

TEST(LastLineTest, ReturnsLastLineThatGivesReason) {
  const TempFolder temp;
  const std::string file = temp.path() + "/role.log";
  EXPECT_EQ(LastLine(file), "none");
  for (const auto& [text, want] : std::vector<std::pair<std::string, std::string>>{
           {"", "none"},
           {"\n\n", "none"},
           {"one", "one"},
           {"one\ntwo\n\n", "two"},
           {"one\ntwo\nsrun: error: n4: task 0: Exited with exit code 5\n", "two"},
           {"srun: error: a\nsrun: error: b\n", "srun: error: b"},
           {std::string(5000, 'x') + "\n", std::string(1999, 'x')}}) {
    std::ofstream(file) << text;
    EXPECT_EQ(LastLine(file), want);
  }
}

}  // namespace
}  // namespace troop
