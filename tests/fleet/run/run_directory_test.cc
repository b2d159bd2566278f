#include "fleet/run/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fleet/run/metrics_writer.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() {
    config_.log.dir = temp_.path();
    config_.name = "run";
  }
  void MakeRun() {
    const auto folder = OpenRunFolder(config_, FolderUse::kFresh);
    ASSERT_TRUE(folder.ok()) << folder.status().ToString();
    ASSERT_TRUE(BeginRun(*folder).ok());
  }
  void Write(const std::string& name) { std::ofstream(temp_.path() + "/run/" + name) << "x"; }
  bool Has(const std::string& name) { return fs::exists(temp_.path() + "/run/" + name); }

  TempFolder temp_;
  Config config_;
};

TEST_F(RunFolderTest, AllowsOneProcessAndNamesHolder) {
  const auto first = OpenRunFolder(config_, FolderUse::kFresh);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  for (const FolderUse use : {FolderUse::kFresh, FolderUse::kOverwrite, FolderUse::kResume}) {
    const Status second = OpenRunFolder(config_, use).status();
    EXPECT_EQ(second.code(), Code::kAlreadyExists);
    EXPECT_NE(second.message().find(fmt::format("process {}", getpid())), std::string::npos)
        << second.message();
  }
}

TEST_F(RunFolderTest, ReportsUnwritableFolderAsSuch) {
  fs::create_directories(temp_.path() + "/run/lock");  // no file can be there
  const Status status = OpenRunFolder(config_, FolderUse::kFresh).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("is not writable"), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find("in use"), std::string::npos) << status.message();
}

// The next start was refused: "is held by process", which was dead.
TEST_F(RunFolderTest, WaitsForLockHeldByChildOfDeadLauncher) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    const auto held = OpenRunFolder(config_, FolderUse::kFresh);
    if (fork() == 0) {
      if (write(told[1], "x", 1) == 1) usleep(100'000);
    }
    _exit(held.ok() ? 0 : 1);
  }
  char byte = 0;
  EXPECT_EQ(read(told[0], &byte, 1), 1);
  int status = 0;
  EXPECT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(status, 0);
  const auto next = OpenRunFolder(config_, FolderUse::kFresh);
  EXPECT_TRUE(next.ok()) << next.status().ToString();
  close(told[0]);
  close(told[1]);
}

TEST_F(RunFolderTest, RejectsExistingRunForFreshStart) {
  MakeRun();
  const Status status = OpenRunFolder(config_, FolderUse::kFresh).status();
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  for (const char* remedy : {"name=", "--overwrite"}) {
    EXPECT_NE(status.message().find(remedy), std::string::npos) << status.message();
  }
  // It was suggested also where no checkpoint had been written.
  EXPECT_EQ(status.message().find("troop resume"), std::string::npos) << status.message();
}

// It held a lock and a name.
TEST_F(RunFolderTest, FailedStartRemovesItsFolders) {
  const std::string there = temp_.path();
  config_.log.dir = there + "/a/b";
  {
    const auto folder = OpenRunFolder(config_, FolderUse::kFresh);
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    ASSERT_TRUE(MarkStarting(*folder).ok());
    RemoveUnbegun(*folder);
    EXPECT_FALSE(fs::exists(there + "/a"));
    EXPECT_TRUE(fs::exists(there));
  }
  {
    const auto folder = OpenRunFolder(config_, FolderUse::kFresh);
    ASSERT_TRUE(BeginRun(*folder).ok());
    RemoveUnbegun(*folder);
    EXPECT_TRUE(fs::exists(folder->path + "/config.toml"));
  }
}

TEST_F(RunFolderTest, OverwriteRemovesExistingRun) {
  MakeRun();
  Write("result.json");
  EXPECT_TRUE(OpenRunFolder(config_, FolderUse::kOverwrite).ok());
  EXPECT_FALSE(Has("result.json"));
  EXPECT_FALSE(Has("config.toml"));
}

// Regression: `name=src --overwrite` would have removed a folder of source files.
TEST_F(RunFolderTest, OverwriteKeepsFolderWithoutRun) {
  fs::create_directory(temp_.path() + "/run");
  Write("thesis.tex");
  const Status status = OpenRunFolder(config_, FolderUse::kOverwrite).status();
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_TRUE(Has("thesis.tex"));
}

// A run killed while it wrote its config could not be overwritten.
TEST_F(RunFolderTest, OverwriteRemovesRunKilledDuringStart) {
  fs::create_directory(temp_.path() + "/run");
  Write("metrics.jsonl");
  Write("config.toml.tmp");
  EXPECT_TRUE(OpenRunFolder(config_, FolderUse::kOverwrite).ok());
  EXPECT_FALSE(Has("config.toml.tmp"));
  EXPECT_FALSE(Has("metrics.jsonl"));
}

// Former fault: metrics are written before the config, so a run killed between them left files that
// neither --overwrite nor --continue (which overwrites such a run) removed.
TEST_F(RunFolderTest, RunKilledBeforeItsConfigIsReplaced) {
  for (const FolderUse use : {FolderUse::kOverwrite, FolderUse::kFresh}) {
    const pid_t start = fork();
    if (start == 0) {
      const auto folder = OpenRunFolder(config_, FolderUse::kFresh);
      if (!folder.ok() || !MarkStarting(*folder).ok()) _exit(2);
      const auto metrics = MetricsWriter::Make(folder->storage.get(), config_);
      if (!metrics.ok()) _exit(3);
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(start, &status, 0), start);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    ASSERT_TRUE(Has("metrics.jsonl"));
    ASSERT_FALSE(Has("config.toml"));
    const auto folder = OpenRunFolder(config_, use);
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    EXPECT_EQ(*folder->storage->List(""), std::vector<std::string>{"lock"});
  }
}

// The mark of a start never makes foreign files a run.
TEST_F(RunFolderTest, ForeignFilesAreNotMarked) {
  fs::create_directory(temp_.path() + "/run");
  Write("thesis.tex");
  {
    const auto folder = OpenRunFolder(config_, FolderUse::kFresh);
    ASSERT_TRUE(folder.ok() && MarkStarting(*folder).ok());
  }
  EXPECT_EQ(OpenRunFolder(config_, FolderUse::kOverwrite).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(Has("thesis.tex"));
}

// A start that was killed while it removed the run before left logs without a config, and its name
// was blocked, also for --continue.
TEST_F(RunFolderTest, OverwriteRemovesConfigLast) {
  MakeRun();
  Write("metrics.jsonl");
  // In place of the kill: a folder behind "config.toml" in the alphabet that can't be removed.
  const std::string run = temp_.path() + "/run";
  fs::permissions(run + "/logs", fs::perms::owner_read | fs::perms::owner_exec);
  const pid_t start = fork();
  if (start == 0) {
    const bool root = geteuid() == 0;  // root may all: that is given up
    for (const char* const name : {"", "/run", "/run/lock"}) {
      if (root) fs::permissions(temp_.path() + name, fs::perms::all);
    }
    constexpr uid_t kNobody = 65534;
    if (root && setuid(kNobody) != 0) _exit(2);
    _exit(OpenRunFolder(config_, FolderUse::kOverwrite).ok() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(start, &status, 0), start);
  ASSERT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  fs::permissions(run + "/logs", fs::perms::owner_all);
  EXPECT_TRUE(Has("logs/README"));
  EXPECT_TRUE(Has("config.toml"));
  EXPECT_TRUE(OpenRunFolder(config_, FolderUse::kOverwrite).ok());
  EXPECT_FALSE(Has("config.toml"));
}

TEST_F(RunFolderTest, ResumeOfMissingRunCreatesNothing) {
  EXPECT_EQ(OpenRunFolder(config_, FolderUse::kResume).status().code(), Code::kNotFound);
  EXPECT_FALSE(fs::exists(temp_.path() + "/run"));
  EXPECT_EQ(ReadRunConfig(temp_.path() + "/run", {}).status().code(), Code::kNotFound);
}

// A resume that then fails (a damaged checkpoint) must not take the result of the part before.
TEST_F(RunFolderTest, KeepsOldResultUntilRunBegins) {
  MakeRun();
  Write("result.json");
  const auto folder = OpenRunFolder(config_, FolderUse::kResume);
  ASSERT_TRUE(folder.ok()) << folder.status().ToString();
  EXPECT_TRUE(Has("result.json"));
  ASSERT_TRUE(BeginRun(*folder).ok());
  EXPECT_FALSE(Has("result.json"));
}

TEST_F(RunFolderTest, ReadsConfigWithOverridesAfterMove) {
  config_.seed = 17;
  MakeRun();
  fs::rename(temp_.path() + "/run", temp_.path() + "/moved");
  const std::vector<std::string> overrides{"run.total_steps=99000"};
  for (const char* end : {"", "/"}) {
    const auto config = ReadRunConfig(temp_.path() + "/moved" + end, overrides);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(config->seed, 17);
    EXPECT_EQ(config->run.total_steps, 99000);
    EXPECT_TRUE(fs::equivalent(RunPath(*config), temp_.path() + "/moved"));
  }
}

// A run's config names its learners; of another mesh there are others.
TEST_F(RunFolderTest, ChangedMeshChangesLearnerCount) {
  config_.learner.algorithm = AlgorithmKind::kClassifier;
  config_.data.reviews = config_.data.vocabulary = temp_.path();
  config_.mesh = {.dp = 2, .tp = 2};
  config_.fleet.learners = 4;
  MakeRun();
  const auto read = [&](std::vector<std::string> keys) {
    return ReadRunConfig(temp_.path() + "/run", keys);
  };
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{"mesh.dp=1"}, {"mesh.tp=1"}, {"mesh.dp=2", "mesh.tp=1"}}) {
    const auto config = read(keys);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(config->fleet.learners, 1) << "not given: it follows";
  }
  EXPECT_EQ(read({"learner.batch_size=8"})->fleet.learners, 4);
  EXPECT_THAT(read({"mesh.dp=1", "fleet.learners=4"}).status().message(),
              ::testing::HasSubstr("omit fleet.learners"));
}

}  // namespace
}  // namespace troop
