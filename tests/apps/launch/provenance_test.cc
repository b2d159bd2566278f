#include "apps/launch/provenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class ProvenanceTest : public testing::Test {
 protected:
  std::string file() const { return temp_.path() + "/" + kProvenanceFile; }
  std::string Text() const {
    std::ostringstream text;
    text << std::ifstream(file()).rdbuf();
    return text.str();
  }
  // An interpreter that runs these lines of shell.
  std::string Interpreter(const std::string& lines) const {
    const std::string path = temp_.path() + "/python";
    std::ofstream(path) << "#!/bin/sh\n" << lines << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  TempFolder temp_;
  std::unique_ptr<Storage> storage_ = *MakeDiskStorage(temp_.path());
};

TEST_F(ProvenanceTest, EntriesAreAppendedInOrder) {
  ASSERT_TRUE(AppendProvenance(storage_.get(), JsonObject().Add("event", "start")).ok());
  ASSERT_TRUE(AppendProvenance(storage_.get(), JsonObject().Add("event", "resume")).ok());
  EXPECT_EQ(Text(), "{\"event\": \"start\"}\n{\"event\": \"resume\"}\n");
}

TEST_F(ProvenanceTest, DamagedLineIsKeptAndNotJoined) {
  std::ofstream(file()) << "{\"event\": \"sta";
  ASSERT_TRUE(AppendProvenance(storage_.get(), JsonObject().Add("event", "resume")).ok());
  EXPECT_EQ(Text(), "{\"event\": \"sta\n{\"event\": \"resume\"}\n");
}

TEST_F(ProvenanceTest, FolderInItsPlaceIsAnError) {
  fs::create_directories(file() + "/x");
  EXPECT_FALSE(AppendProvenance(storage_.get(), JsonObject()).ok());
}

TEST_F(ProvenanceTest, ValuesOfSecretsAreReplaced) {
  EXPECT_THAT(
      WithoutSecrets({"troop", "train", "env.options.API_Key=abc", "seed=2",
                      "env.options={user=\"u\", password=\"a=b\"}", "--key", "token", "name=keys"}),
      ElementsAre("troop", "train", "env.options.API_Key=***", "seed=2", "env.options=***", "--key",
                  "token", "name=keys"));
}

TEST_F(ProvenanceTest, InterpreterStatesItsPackagesAfterWarnings) {
  const std::string python =
      Interpreter("echo 'warning: old' >&2; echo '{\"python\": \"3.9.1\", \"numpy\": \"1.26\"}'");
  EXPECT_EQ(PythonPackages(python, "gymnasium:CartPole-v1").str(),
            R"({"numpy": "1.26", "python": "3.9.1"})");
}

// The script goes to the interpreter as one argument; the names follow.
TEST_F(ProvenanceTest, InterpreterIsGivenTopModuleOfId) {
  const std::string python =
      Interpreter("shift 2; for last; do :; done; echo \"{\\\"last\\\": \\\"$last\\\"}\"");
  EXPECT_EQ(PythonPackages(python, "python:my_module.sub:make_env").str(),
            R"({"last": "my_module"})");
  EXPECT_EQ(PythonPackages(python, "gymnasium:CartPole-v1").str(), R"({"last": "mujoco"})");
}

TEST_F(ProvenanceTest, FailedInterpreterIsNamedInsteadOfVersions) {
  EXPECT_THAT(PythonPackages(Interpreter("echo broken; exit 3"), "gymnasium:CartPole-v1").str(),
              HasSubstr(R"("error": "exit code 3: broken")"));
  // Valid JSON before the failure is not an answer.
  EXPECT_THAT(PythonPackages(Interpreter("echo {}; exit 4"), "gymnasium:CartPole-v1").str(),
              HasSubstr("exit code 4"));
  EXPECT_THAT(PythonPackages("no-such-python-here", "gymnasium:CartPole-v1").str(),
              HasSubstr(R"("error": "no-such-python-here is not in PATH")"));
}

}  // namespace
}  // namespace troop
