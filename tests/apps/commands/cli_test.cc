#include "apps/commands/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "apps/commands/config_command.h"
#include "apps/commands/scale_command.h"
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

// Runs a handler; returns its exit code and what it wrote to standard error.
std::pair<int, std::string> Call(const ChosenCommand& command) {
  testing::internal::CaptureStderr();
  const int code = command();
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(RegisterTest, ParsingOnlySelectsTheHandler) {
  CLI::App app;
  ChosenCommand chosen;
  RegisterScale(app, &chosen);
  EXPECT_FALSE(chosen);
  testing::internal::CaptureStderr();
  app.parse("scale /nowhere actors=2");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_TRUE(chosen);
  const auto [code, message] = Call(chosen);
  EXPECT_NE(code, kExitOk);
  EXPECT_THAT(message, testing::HasSubstr("/nowhere: not a run folder"));
}

// CLI11 also calls the callback of `config`.
TEST(RegisterTest, SubcommandOfConfigKeepsItsHandler) {
  CLI::App app;
  ChosenCommand chosen;
  RegisterConfig(app, &chosen);
  app.parse("config migrate /nowhere.toml");
  ASSERT_TRUE(chosen);
  EXPECT_THAT(Call(chosen).second, testing::HasSubstr("/nowhere.toml"));
}

}  // namespace
}  // namespace troop
