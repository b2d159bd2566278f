// The record of a run's origin, in the folders of real runs.

#include <gmock/gmock.h>
#include <stdio.h>
#include <sys/utsname.h>

#include "core/base/version.h"
#include "tests/core/python.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

class RunProvenanceTest : public SystemTest {
 protected:
  std::vector<JsonValue> Entries() const {
    std::vector<JsonValue> entries;
    std::istringstream lines(FileText(run() + "/provenance.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      Result<JsonValue> entry = ParseJson(line);
      EXPECT_TRUE(entry.ok()) << line;
      if (entry.ok()) entries.push_back(std::move(*entry));
    }
    return entries;
  }
  // First word that a shell command prints; empty if it fails.
  static std::string Output(const std::string& command) {
    FILE* const pipe = popen((command + " 2>/dev/null").c_str(), "r");
    char word[256] = {};
    const bool read = pipe != nullptr && fscanf(pipe, "%255s", word) == 1;
    return pipe != nullptr && pclose(pipe) == 0 && read ? word : "";
  }
  static std::string Member(const JsonValue& entry, const char* object, const char* name) {
    const JsonValue* const part = entry.Find(object);
    const JsonValue* const value = part == nullptr ? nullptr : part->Find(name);
    return value == nullptr ? "" : value->string;
  }
};

TEST_F(RunProvenanceTest, StartAndResumeAreRecordedWithProgramMachineAndConfig) {
  const auto troop = Start(TrainWords({"run.total_steps=3001", "name=run"}),
                           {"TROOP_TEST_SECRET=hunter2", "AWS_SECRET_ACCESS_KEY=hunter2"});
  ExpectDone(troop.get(), 3001);
  std::vector<JsonValue> entries = Entries();
  ASSERT_EQ(entries.size(), 1u);
  const JsonValue& start = entries[0];
  EXPECT_EQ(*start.String("event"), "start");
  EXPECT_EQ(*start.String("version"), kTroopVersion);
  EXPECT_THAT(*start.String("commit"), MatchesRegex("[0-9a-f]{40}(-dirty)?|unknown"));
  EXPECT_EQ(*start.Integer("process"), troop->process());
  // The command line as it was given.
  const std::vector<JsonValue>& words = start.Find("command")->array;
  ASSERT_EQ(words.size(), 6u);
  EXPECT_EQ(words[1].string, "train");
  EXPECT_EQ(words[2].string, config());
  EXPECT_EQ(words[4].string, "run.total_steps=3001");
  // The machine, by other programs and the C library.
  utsname system{};
  ASSERT_EQ(uname(&system), 0);
  EXPECT_EQ(*start.String("host"), system.nodename);
  EXPECT_EQ(Member(start, "system", "kernel"), system.release);
  EXPECT_EQ(std::to_string(*start.Find("processor")->Integer("usable")),
            Output("env -u OMP_NUM_THREADS nproc"));
  EXPECT_EQ(Member(start, "packages", "ZeroMQ"), Output("pkg-config --modversion libzmq"));
  EXPECT_EQ(Member(start, "packages", "zstd"), Output("pkg-config --modversion libzstd"));
  EXPECT_EQ(Member(start, "environment", "id"), "CartPole-v1");
  EXPECT_EQ(*start.String("config_sha256"), Output("sha256sum " + run() + "/config.toml"));
  EXPECT_THAT(FileText(run() + "/provenance.jsonl"), Not(HasSubstr("hunter2")));

  const std::string first = FileText(run() + "/provenance.jsonl");
  const auto resumed = this->Start({"resume", run(), "run.total_steps=6001"});
  ExpectDone(resumed.get(), 6001);
  EXPECT_TRUE(FileText(run() + "/provenance.jsonl").starts_with(first));
  entries = Entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(*entries[1].String("event"), "resume");
  EXPECT_EQ(*entries[1].Integer("steps"), 3001);
  EXPECT_EQ(entries[1].Find("command")->array[1].string, "resume");
  EXPECT_EQ(*entries[1].String("config_sha256"), Output("sha256sum " + run() + "/config.toml"));
  EXPECT_NE(*entries[1].String("config_sha256"), *entries[0].String("config_sha256"));
}

TEST_F(RunProvenanceTest, NamesCommitOfSources) {
  const std::string git = "git -C " TROOP_SOURCE_DIR " rev-parse HEAD";
  const std::string head = Output(git);
  if (head.empty()) GTEST_SKIP() << "the sources are in no repository";
  ExpectDone(Train({"run.total_steps=1001", "fleet.mode=serial"}).get(), 1001);
  ASSERT_EQ(Entries().size(), 1u);
  EXPECT_EQ(Entries()[0].String("commit")->substr(0, 40), head);
}

TEST_F(RunProvenanceTest, PythonRunNamesPackagesOfItsInterpreterAndCode) {
  TROOP_SKIP_WITHOUT_PYTHON();
  const auto troop = Start(
      TrainWords({"env.id=python:faulty_env:Counter", "run.total_steps=1001", "fleet.mode=serial",
                  std::string("env.python=") + getenv("TROOP_TEST_PYTHON"),
                  "env.options.pids=" + folder() + "/pids"}),
      {"PYTHONPATH=" TROOP_SOURCE_DIR "/tests/envs"});
  ExpectDone(troop.get(), 1001);
  ASSERT_EQ(Entries().size(), 1u);
  const JsonValue entry = Entries()[0];
  EXPECT_THAT(Member(entry, "environment", "code"), HasSubstr("1 Python file of "));
  const JsonValue* const packages = entry.Find("environment")->Find("python");
  ASSERT_NE(packages, nullptr);
  EXPECT_EQ(*packages->String("numpy") + "\n",
            RunPython("-c 'import numpy; print(numpy.__version__)'"));
  EXPECT_EQ(*packages->String("gymnasium") + "\n",
            RunPython("-c 'import gymnasium; print(gymnasium.__version__)'"));
}

}  // namespace
}  // namespace troop
