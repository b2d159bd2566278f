#include "apps/commands/cli.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands/config_command.h"
#include "apps/commands/scale_command.h"
#include "fleet/launcher/exit_code.h"
#include "tests/core/temp_folder.h"

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

// Runs a command line without the program's name; returns its exit code and its messages.
std::pair<int, std::string> RunLine(std::vector<std::string> words) {
  words.insert(words.begin(), "troop");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  testing::internal::CaptureStderr();
  const int code = RunCommand(int(words.size()), argv.data());
  return {code, testing::internal::GetCapturedStderr()};
}

// Every flag and argument with a value, in all commands: an unset shell variable is not silently
// taken for a flag that was not given. `troop eval ""` ended by an exception.
TEST(RunCommandTest, EmptyValuesAreErrors) {
  for (const std::vector<std::string>& line :
       std::vector<std::vector<std::string>>{{"eval", ""},
                                             {"eval", "/nowhere", "--record", ""},
                                             {"eval", "/nowhere", "--episodes", ""},
                                             {"eval", "--record=", "/nowhere"},
                                             {"play", "/nowhere", "--gif", ""},
                                             {"train", ""},
                                             {"config", "--check", ""},
                                             {"config", "migrate", ""},
                                             {"sweep", "/nowhere.toml", "--seeds", ""},
                                             {"plot", "/nowhere", "--out", ""},
                                             {"plot", "/nowhere", ""},
                                             {"status", "/nowhere", "--key="},
                                             {"env", "check", ""},
                                             {"tokenize", "word", "--vocab", ""}}) {
    const auto [code, message] = RunLine(line);
    const std::string text = fmt::format("{}", fmt::join(line, " "));
    EXPECT_EQ(code, kExitUsage) << text;
    EXPECT_THAT(message, testing::HasSubstr(": the value is empty")) << text;
    EXPECT_EQ(std::ranges::count(message, '\n'), 1) << message;
  }
}

TEST(RunCommandTest, ConfigCheckAdvisesOnTargets) {
  const TempFolder folder;
  const std::string path = folder.path() + "/td3.toml";
  std::ofstream(path) << "env.id = \"Pendulum-v1\"\nlearner.algorithm = \"td3\"\n";
  testing::internal::CaptureStdout();
  const auto [code, message] = RunLine({"config", "--check", path});
  EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr("algorithm = \"td3\""));
  EXPECT_EQ(code, kExitOk);
  EXPECT_THAT(message, testing::StartsWith("troop: " + path + ": learner.target_update_every"));
  EXPECT_EQ(std::ranges::count(message, '\n'), 1) << message;
}

// The exceptions are not errors of the parser.
TEST(RunCommandTest, EmptyTextsAndOverridesArePassedOn) {
  for (const std::vector<std::string>& line : std::vector<std::vector<std::string>>{
           {"tokenize", "--vocab", "/nowhere", ""},
           {"predict", "/nowhere", ""},
           {"train", TROOP_SOURCE_DIR "/configs/apex_cartpole.toml", "", "--dry-run"}}) {
    const auto [code, message] = RunLine(line);
    EXPECT_NE(code, kExitOk);
    EXPECT_THAT(message, testing::Not(testing::HasSubstr("the value is empty")));
    EXPECT_THAT(message, testing::Not(testing::HasSubstr("--help")));
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
