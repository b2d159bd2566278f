// `troop train --engine mpi` under Open MPI's mpirun.
#include "tests/system/troop_process.h"

namespace troop {
namespace {

class MpiRunTest : public SystemTest {
 protected:
  void SetUp() override {
    if (access("/usr/bin/mpirun", X_OK) != 0) GTEST_SKIP() << "no Open MPI: openmpi-bin is absent";
  }
  std::vector<std::string> MpiRun(int ranks) const {
    return {"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", std::to_string(ranks)};
  }
};

TEST_F(MpiRunTest, ThreeLearnersTrainAndAllRanksEnd) {
  std::vector<std::string> words = TrainWords({"run.total_steps=6003"});
  words.insert(words.end(), {"--engine", "mpi"});
  Troop mpirun(words, folder(), {}, MpiRun(3));
  ExpectDone(&mpirun, 6003);
  for (const int rank : {1, 2}) {
    const std::string name = "learner-" + std::to_string(rank);
    EXPECT_NE(LauncherLog().find(name + " joined"), std::string::npos) << LauncherLog();
    EXPECT_FALSE(std::filesystem::exists(run() + "/logs/" + name + ".log")) << "rank 0 started it";
  }
  EXPECT_NE(mpirun.output().find("joined as learner-2"), std::string::npos) << mpirun.output();
}

TEST_F(MpiRunTest, InterruptedRunResumesInNewLaunch) {
  std::vector<std::string> words = TrainWords({"run.total_steps=1e9"});
  words.insert(words.end(), {"--engine", "mpi"});
  Troop mpirun(words, folder(), {}, MpiRun(2));
  ASSERT_TRUE(AwaitCheckpoint()) << mpirun.output() << LauncherLog();
  mpirun.Signal(SIGTERM);
  EXPECT_NE(mpirun.Wait(), -1);
  // mpirun kills its ranks a second after SIGTERM; the kernel then ends their roles, after mpirun.
  EXPECT_TRUE(Await([&] { return RoleProcesses(Coordinator()).empty(); }, 10));
  const std::int64_t total = Steps() + 20003;
  // run.json of the first launch is still there: the ranks of the second wait for its own.
  Troop again({"resume", run(), "run.total_steps=" + std::to_string(total)}, folder(), {},
              MpiRun(2));
  ExpectDone(&again, total);
  EXPECT_NE(again.output().find("resuming"), std::string::npos) << again.output();
}

TEST_F(MpiRunTest, AllRanksRejectRankCountOtherThanLearners) {
  std::vector<std::string> words = TrainWords({"fleet.learners=3"});
  words.insert(words.end(), {"--engine", "mpi"});
  Troop mpirun(words, folder(), {}, MpiRun(2));
  EXPECT_NE(mpirun.Wait(), 0);
  EXPECT_NE(mpirun.output().find("mpirun started 2 ranks, but fleet.learners is 3"),
            std::string::npos)
      << mpirun.output();
  const auto alone = Start(words);
  EXPECT_EQ(alone->Wait(), 1) << alone->output();
  EXPECT_NE(alone->output().find("mpirun -n N troop train"), std::string::npos) << alone->output();
}

}  // namespace
}  // namespace troop
