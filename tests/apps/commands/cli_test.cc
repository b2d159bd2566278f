#include "apps/commands/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/launcher/exit_code.h"

namespace troop {
namespace {

// Exit code 5 was missing in the help.
TEST(RunCommandTest, HelpListsEveryExitCode) {
  std::string program = "troop", help = "--help";
  char* words[] = {program.data(), help.data(), nullptr};
  testing::internal::CaptureStdout();
  EXPECT_EQ(RunCommand(2, words), kExitOk);
  std::string text = testing::internal::GetCapturedStdout();
  text = text.substr(0, text.find("Usage:"));
  for (const ExitCode code : {kExitOk, kExitFailed, kExitUsage, kExitInUse, kExitDamaged,
                              kExitGaveUp, kExitInterrupted}) {
    EXPECT_THAT(text, testing::ContainsRegex("[ \n]" + std::to_string(int(code)) + " [a-z]"));
  }
}

}  // namespace
}  // namespace troop
