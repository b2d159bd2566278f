// A process is killed at each point of a checkpoint's writing: what is found then is whole, and the
// next writing is not hindered.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/failpoint.h"
#include "learners/algorithm.h"
#include "learners/checkpoint.h"
#include "nn/models/model.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

class CheckpointCrashTest : public testing::TestWithParam<std::string_view> {
 protected:
  CheckpointCrashTest() {
    env_.id = "test";
    env_.observation = {DType::kF32, {3}};
    env_.action.count = 2;
    module_ = std::move(*MakeNetwork(ModelSetupOf(config_), env_));
    algorithm_ = std::move(*MakeAlgorithm(config_, env_));
  }
  // A child writes a checkpoint, and dies at the n-th time of the failpoint. True when it died.
  bool DiesWriting(std::uint64_t updates, std::int64_t steps, std::string_view name, int n) {
    const pid_t process = fork();
    if (process == 0) {
      setenv("TROOP_FAILPOINT", fmt::format("{}:{}", name, n).c_str(), 1);
      ReloadFailpoint();
      _exit(Write(updates, steps).ok() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(process, &status, 0), process);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    EXPECT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
    return killed;
  }
  Result<std::string> Write(std::uint64_t updates, std::int64_t steps) {
    auto run = MakeDiskStorage(folder());
    if (!run.ok()) return run.status();
    return WriteCheckpoint(run->get(), *module_,
                           {.updates = updates,
                            .steps = steps,
                            .config_toml = "seed = 3\n",
                            .state = algorithm_->State()},
                           kKeep);
  }
  // Returns the steps of the newest complete checkpoint, or -1 without one.
  std::int64_t NewestSteps() {
    const auto run = MakeDiskStorage(folder());
    const auto path = NewestCheckpoint(run->get());
    if (!path.ok()) return -1;
    const auto read = ReadCheckpoint(run->get(), *path);
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    return read.ok() ? read->steps : -1;
  }
  void Begin(std::vector<std::uint64_t> before) {
    temp_ = std::make_unique<TempFolder>();
    for (const std::uint64_t updates : before) ASSERT_TRUE(Write(updates, 100).ok());
  }
  // Dies writing `updates` in a folder that holds those of `before`, at every time in turn that the
  // failpoint is reached. Counts the deaths.
  int DieAtEachTime(const std::vector<std::uint64_t>& before, std::uint64_t updates) {
    for (int n = 1;; ++n) {
      Begin(before);
      if (!DiesWriting(updates, 200, GetParam(), n)) return n - 1;
      const std::int64_t found = NewestSteps();
      EXPECT_TRUE(found == 100 || found == 200) << GetParam() << ":" << n << " found " << found;
      // Leftovers of a killed writer do not prevent the next write, which removes them.
      EXPECT_TRUE(Write(updates, 300).ok()) << GetParam() << ":" << n;
      EXPECT_EQ(NewestSteps(), 300) << GetParam() << ":" << n;
      EXPECT_LE((*MakeDiskStorage(folder()))->List("checkpoints")->size(), std::size_t(kKeep));
      if (n > 1) continue;
      // Corrects the steps as the launcher does at the end of a run.
      EXPECT_TRUE(CorrectCheckpointSteps(MakeDiskStorage(folder())->get(),
                                         fmt::format("checkpoints/{:012}", updates), 301)
                      .ok());
      EXPECT_EQ(NewestSteps(), 301) << GetParam() << ":" << n;
    }
  }
  std::string folder() const { return temp_->path(); }

  static constexpr std::int64_t kKeep = 2;
  EnvSpec env_;
  TrainingConfig config_;
  std::unique_ptr<Module> module_;
  std::unique_ptr<Algorithm> algorithm_;
  std::unique_ptr<TempFolder> temp_;
};

bool OfCheckpoints(std::string_view name) {
  return name.starts_with("checkpoint.") || name.starts_with("disk.");
}

TEST_P(CheckpointCrashTest, FindsIntactCheckpointAfterKillAtEachPoint) {
  const std::string_view name = GetParam();
  const int beside = DieAtEachTime({10, 20}, 30);
  const int in_place = DieAtEachTime({10, 20}, 20);
  if (name == "checkpoint.aside") {
    EXPECT_EQ(beside, 0);  // nothing of its name is there
  } else {
    EXPECT_GE(beside, 1) << "never reached";
  }
  if (name == "checkpoint.trim") {
    EXPECT_EQ(in_place, 0);  // none is too many
  } else {
    EXPECT_GE(in_place, 1) << "never reached";
  }
  if (name.starts_with("disk.")) {
    EXPECT_EQ(beside, 4) << "three files and their manifest";
  }
}

TEST_P(CheckpointCrashTest, FirstCheckpointIsAllOrNothing) {
  for (int n = 1; n <= 4; ++n) {
    Begin({});
    if (!DiesWriting(30, 200, GetParam(), n)) break;
    const bool installed = GetParam() == "checkpoint.installed" || GetParam() == "checkpoint.trim";
    EXPECT_EQ(NewestSteps(), installed ? 200 : -1) << n;
    EXPECT_TRUE(Write(30, 300).ok());
    EXPECT_EQ(NewestSteps(), 300) << n;
  }
}

std::vector<std::string_view> Names() {
  std::vector<std::string_view> names;
  for (const std::string_view name : FailpointNames()) {
    if (OfCheckpoints(name)) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Failpoints, CheckpointCrashTest, testing::ValuesIn(Names()),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace troop
