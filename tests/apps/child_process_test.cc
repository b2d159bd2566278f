#include "apps/child_process.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace troop {
namespace {

TEST(RunProgramTest, TellsWhatAProgramSaidAndHowItEnded) {
  const auto said = RunProgram({"sh", "-c", "echo out; echo err >&2; exit 3"}, Seconds(20));
  ASSERT_TRUE(said.ok()) << said.status().message();
  EXPECT_EQ(said->output, "out\nerr\n");
  EXPECT_EQ(said->code, 3);
  EXPECT_EQ(RunProgram({"sh", "-c", "kill -9 $$"}, Seconds(20))->code, 137);
}

TEST(RunProgramTest, WordsAreNoShellsAndAMissingProgramIsNamed) {
  EXPECT_EQ(RunProgram({"echo", "$HOME; ls", "'a b'"}, Seconds(20))->output, "$HOME; ls 'a b'\n");
  const auto none = RunProgram({"no-such-program-of-troop"}, Seconds(20));
  EXPECT_EQ(none.status().code(), Code::kNotFound);
  EXPECT_NE(none.status().message().find("no-such-program-of-troop"), std::string::npos);
}

TEST(RunProgramTest, OneThatTakesTooLongIsKilled) {
  const auto said = RunProgram({"sh", "-c", "echo begins; exec sleep 1000"}, Milliseconds(200));
  EXPECT_EQ(said.status().code(), Code::kDeadlineExceeded);
}

TEST(RunProgramTest, MuchOutputNeitherBlocksNorFillsTheMemory) {
  const auto said = RunProgram({"head", "-c", "5000000", "/dev/zero"}, Seconds(20));
  ASSERT_TRUE(said.ok()) << said.status().message();
  EXPECT_EQ(said->code, 0);
  EXPECT_GE(said->output.size(), 1u << 20);
  EXPECT_LT(said->output.size(), (1u << 20) + 5000);
}

}  // namespace
}  // namespace troop
