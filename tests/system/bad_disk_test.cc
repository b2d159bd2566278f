// Checkpoints survive a death at each point of their writing, and a disk that is full, read-only or
// slow.

#include "core/base/failpoint.h"
#include "core/storage/storage.h"
#include "learners/checkpoint.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

class BadDiskTest : public SystemTest {
 protected:
  // Updates of the newest complete checkpoint, whose files are read and checked; -1 without one.
  std::int64_t NewestUpdates() const {
    if (!fs::exists(run() + "/checkpoints")) return -1;
    const auto storage = MakeDiskStorage(run());
    const auto path = NewestCheckpoint(storage->get());
    if (!path.ok()) return -1;
    const auto checkpoint = ReadCheckpoint(storage->get(), *path);
    return checkpoint.ok() ? std::int64_t(checkpoint->updates) : -1;
  }
  std::string LearnerLog() const { return FileText(run() + "/logs/learner-0.log"); }
  static int Count(const std::string& text, const std::string& part) {
    int count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++count;
    return count;
  }
};

class RunFailpointTest : public BadDiskTest, public testing::WithParamInterface<std::string_view> {
 protected:
  static std::vector<std::string> Keys(int keep) {
    return {"fleet.mode=serial",
            "run.total_steps=1001",
            "evaluator.enabled=false",
            "checkpoint.every_s=0.02",
            "checkpoint.every_updates=0",
            "replay.min_items=200",
            "checkpoint.keep=" + std::to_string(keep)};
  }
  // Kills the program at the n-th time of the failpoint, resumes it, and sees it end. False when it
  // ended before it got there.
  bool SurvivesDeathAt(int n) {
    fs::remove_all(run());
    const std::string order = fmt::format("TROOP_FAILPOINT={}:{}", GetParam(), n);
    const auto troop = Start(TrainWords(Keys(1 + n % 2)), {order});
    const int code = troop->Wait();
    if (code == 0) return false;
    EXPECT_EQ(code, 128 + SIGKILL) << troop->output();
    // If a checkpoint is complete by its name, the run can resume from it; before that there is
    // nothing to lose.
    bool any = false;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(run() + "/checkpoints", none)) {
      any = any || !entry.path().has_extension() || entry.path().extension() == ".old";
    }
    EXPECT_EQ(NewestUpdates() >= 0, any) << order;
    const auto again = any ? Start({"resume", run()}) : Train(Overwriting(Keys(1)));
    ExpectDone(again.get(), 1001);
    EXPECT_EQ(any, again->output().find("resuming") != std::string::npos) << again->output();
    return true;
  }
  static std::vector<std::string> Overwriting(std::vector<std::string> words) {
    words.push_back("--overwrite");
    return words;
  }
};

// While the second checkpoint is written. Of disk.*, eight files and more come before the first.
TEST_P(RunFailpointTest, ResumesFromIntactCheckpointAfterKill) {
  const std::string_view name = GetParam();
  const int n = name.starts_with("disk.") ? 14 : name == "checkpoint.file" ? 5 : 2;
  EXPECT_TRUE(SurvivesDeathAt(n) || SurvivesDeathAt(1)) << name << " is never reached";
}

TEST_P(RunFailpointTest, SlowResumesAfterKillAtEachHit) {
  int n = 1;
  while (SurvivesDeathAt(n)) ++n;
  EXPECT_GT(n, 1) << GetParam() << " is never reached";
}

std::vector<std::string_view> NamesOnDisk() {
  std::vector<std::string_view> names;
  for (const std::string_view name : FailpointNames()) {
    if (name.starts_with("checkpoint.") || name.starts_with("disk.")) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Names, RunFailpointTest, testing::ValuesIn(NamesOnDisk()),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

// Each learner process dies while writing its second checkpoint; the next one resumes from the
// first.
TEST_F(BadDiskTest, SurvivesLearnerKilledWhileWritingCheckpoints) {
  const auto troop = Start(
      TrainWords({"run.total_steps=20003", "fleet.backoff_max_s=0.1", "fleet.restarts_max=200"}),
      {"TROOP_FAILPOINT=checkpoint.manifest:2"});
  ExpectDone(troop.get(), 20003);
  EXPECT_NE(LauncherLog().find("learner-0 ended (killed by signal 9"), std::string::npos)
      << LauncherLog();
  EXPECT_NE(LearnerLog().find("resumed from checkpoints/"), std::string::npos) << LearnerLog();
}

class FaultyDiskTest : public BadDiskTest {
 protected:
  std::string fault_file() const { return folder() + "/fault"; }
  // The run folder's path in the program's normalized form.
  std::string faulty_folder() const { return fs::path(run()).lexically_normal().string(); }
  void SetFault(const std::string& fault) const {
    std::ofstream(fault_file() + ".new") << fault;
    fs::rename(fault_file() + ".new", fault_file());
  }
  // A run without an end, whose disk does what SetFault says.
  std::unique_ptr<Troop> TrainOnFaultyDisk(const std::string& below,
                                           std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"run.total_steps=100000000", "checkpoint.every_s=0.1",
                             "replay.samples_per_insert=2"});
    return Start(TrainWords(more),
                 {"LD_PRELOAD=" TROOP_DISK_FAULT, "TROOP_DISK_FAULT_FILE=" + fault_file(),
                  "TROOP_DISK_FAULT_FOLDER=" + faulty_folder() + below});
  }
  // Stops it in good order; resumed with a few steps more, it ends as any.
  void ExpectEndsWell(Troop* troop) const {
    troop->Signal(SIGINT);
    ASSERT_EQ(troop->Wait(), 130) << troop->output() << LauncherLog();
    const std::int64_t steps = *Json(run() + "/result.json").Integer("steps");
    const auto resumed = Start({"resume", run(), "run.total_steps=" + std::to_string(steps + 500)});
    ExpectDone(resumed.get(), steps + 500);
  }
};

// A disk fault, and the error that is logged for it.
class DiskFaultTest : public FaultyDiskTest,
                      public testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(DiskFaultTest, FailedCheckpointKeepsOlderOneAndLaterOnesSucceed) {
  const auto& [fault, reason] = GetParam();
  const auto troop = TrainOnFaultyDisk("/checkpoints");
  ASSERT_TRUE(AwaitCheckpoint()) << troop->output() << LearnerLog();
  SetFault(fault);
  const std::string failed = "checkpoint failed, keeping the previous one";
  ASSERT_TRUE(Await([&] { return Count(LearnerLog(), failed) >= 1; })) << LearnerLog();
  const std::int64_t newest = NewestUpdates(), steps = Steps();
  EXPECT_GE(newest, 0);
  EXPECT_NE(LearnerLog().find(reason), std::string::npos) << LearnerLog();
  EXPECT_NE(LearnerLog().find("/checkpoints/"), std::string::npos) << LearnerLog();
  // Training continues, and the older checkpoint stays, however often the next one fails.
  EXPECT_TRUE(Await([&] { return Count(LearnerLog(), failed) >= 4 && Steps() > steps + 100; }))
      << LearnerLog();
  EXPECT_EQ(NewestUpdates(), newest);
  // Failed checkpoints do not fill the disk further.
  const auto half_written = [](const auto& e) { return e.path().extension() == ".tmp"; };
  EXPECT_LE(std::ranges::count_if(fs::directory_iterator(run() + "/checkpoints"), half_written), 1);
  SetFault("");
  EXPECT_TRUE(Await([&] { return NewestUpdates() > newest; })) << LearnerLog();
  EXPECT_EQ(LauncherLog().find("restart"), std::string::npos) << LauncherLog();
  ExpectEndsWell(troop.get());
  EXPECT_NE(troop->output().find("checkpoints were not written"), std::string::npos)
      << troop->output();
}

TEST_P(DiskFaultTest, ContinuesWhenRunFolderIsWritableAgain) {
  const auto troop = TrainOnFaultyDisk("");
  ASSERT_TRUE(AwaitCheckpoint() && AwaitSteps(500)) << troop->output() << LearnerLog();
  SetFault(GetParam().first);
  // Its log can't be written either: what it does shows in its answers.
  const auto live_steps = [&]() -> std::int64_t {
    const auto status = Start({"status", "--json", run()});
    if (status->Wait() != 0) return -1;
    const auto view = ParseJson(status->output());
    return view.ok() && view->Integer("steps").ok() ? *view->Integer("steps") : -1;
  };
  std::int64_t first = -1;
  EXPECT_TRUE(Await([&] { return (first = live_steps()) >= 0; })) << troop->output();
  const auto line = fs::file_size(run() + "/metrics.jsonl");
  EXPECT_TRUE(Await([&] { return live_steps() > first + 500; })) << troop->output();
  EXPECT_EQ(fs::file_size(run() + "/metrics.jsonl"), line);
  const std::int64_t newest = NewestUpdates();
  EXPECT_GE(newest, 0);
  SetFault("");
  EXPECT_TRUE(Await([&] { return NewestUpdates() > newest; })) << LearnerLog();
  ExpectEndsWell(troop.get());
}

INSTANTIATE_TEST_SUITE_P(Faults, DiskFaultTest,
                         testing::Values(std::pair("full", "No space left on device"),
                                         std::pair("readonly", "Read-only file system")),
                         [](const auto& info) { return std::string(info.param.first); });

// The terminal said "bottleneck: actors", and status "alive".
TEST_F(FaultyDiskTest, ReportsReplayBlockedByFullDisk) {
  const auto troop =
      TrainOnFaultyDisk("/replay-0", {"replay.persist=true", "replay.durability=disk"});
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  SetFault("full");
  std::string said;
  EXPECT_TRUE(Await([&] {
    const auto status = Start({"status", run()});
    said = status->Wait() == 0 ? status->output() : "";
    return said.find("replay-0 is blocked: ") != said.npos;
  })) << said;
  EXPECT_NE(said.find("No space left on device"), said.npos) << said;
  EXPECT_TRUE(Await([&] {
    return FileText(run() + "/metrics.jsonl").find("replay (replay-0 is blocked: ") != said.npos;
  }));
  SetFault("");
  const std::int64_t steps = Steps();
  EXPECT_TRUE(AwaitSteps(steps + 500)) << troop->output();
  ExpectEndsWell(troop.get());
  EXPECT_NE(troop->output().find("troop: replay-0 is blocked: "), said.npos) << troop->output();
}

TEST_F(FaultyDiskTest, DelayedDiskBlocksOnlyCheckpoint) {
  const auto troop = TrainOnFaultyDisk("/checkpoints");
  ASSERT_TRUE(AwaitCheckpoint()) << troop->output();
  SetFault("slow");
  const std::int64_t newest = NewestUpdates(), steps = Steps();
  EXPECT_TRUE(Await([&] { return NewestUpdates() > newest && Steps() > steps + 500; }))
      << LearnerLog();
  EXPECT_EQ(LearnerLog().find("checkpoint failed"), std::string::npos) << LearnerLog();
  EXPECT_EQ(LauncherLog().find("restart"), std::string::npos) << LauncherLog();
  SetFault("");
  ExpectEndsWell(troop.get());
}

}  // namespace
}  // namespace troop
