#include "apps/commands/status_command.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <set>

#include "apps/commands/eval_command.h"
#include "core/graphics/animation.h"
#include "core/storage/json.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/run/run_directory.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

Config RunConfig(const TempFolder& folder, FleetMode mode) {
  Config config;
  config.name = "run";
  config.log.dir = folder.path();
  config.fleet.mode = mode;
  config.run.total_steps = 10000;
  return config;
}

struct Said {
  int code = 0;
  std::string out, error;
};
Said Status(const std::string& path, bool json = false) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Said said{.code = ShowStatus({.run = path, .json = json}), .out = {}, .error = {}};
  std::fflush(stdout);
  said.out = testing::internal::GetCapturedStdout();
  said.error = testing::internal::GetCapturedStderr();
  return said;
}

// A serial run has no run.json: its status was an error of the command line, alive or not.
TEST(StatusTest, ShowsLiveAndKilledSerialRun) {
  const TempFolder folder;
  std::string path;
  {
    auto run = OpenRunFolder(RunConfig(folder, FleetMode::kSerial), FolderUse::kFresh);
    ASSERT_TRUE(run.ok());
    ASSERT_TRUE(BeginRun(*run).ok());
    path = run->path;
    EXPECT_EQ(Status(path).code, kExitOk);
    ASSERT_TRUE(run->storage
                    ->WriteAtomic("metrics.jsonl",
                                  "{\"phase\": \"running\", \"steps\": 10}\n"
                                  "{\"phase\": \"running\", \"steps\": 4321}\n{\"pha")
                    .ok());
    const Said said = Status(path);
    EXPECT_EQ(said.code, kExitOk) << said.error;
    EXPECT_NE(said.out.find("running: 4321 of 10000"), std::string::npos) << said.out;
    EXPECT_NE(said.out.find(std::to_string(getpid())), std::string::npos) << said.out;
    const auto json = ParseJson(Status(path, true).out);
    ASSERT_TRUE(json.ok());
    EXPECT_EQ(json->Find("steps")->number, 4321);
  }
  const Said said = Status(path);
  EXPECT_EQ(said.code, kExitFailed);
  EXPECT_NE(said.error.find("was killed"), std::string::npos) << said.error;
  EXPECT_NE(said.error.find("restart with: troop train"), std::string::npos) << said.error;
}

std::set<std::string> KeysOf(const std::string& json) {
  const auto view = ParseJson(json);
  EXPECT_TRUE(view.ok()) << json;
  std::set<std::string> keys;
  for (const auto& [key, value] : view->object) {
    if (key != "return_mean") keys.insert(key);  // absent until it is known
  }
  return keys;
}

// --json printed result.json of a run that had ended, which has other keys; and so did the text.
TEST(StatusTest, LiveAndEndedRunsHaveSameKeys) {
  const TempFolder folder;
  auto run = OpenRunFolder(RunConfig(folder, FleetMode::kSerial), FolderUse::kFresh);
  ASSERT_TRUE(run.ok());
  ASSERT_TRUE(BeginRun(*run).ok());
  const auto live = KeysOf(ViewJson(RunView{}, {}));
  EXPECT_EQ(KeysOf(Status(run->path, true).out), live) << "a serial run that has just begun";
  const auto end = [&](const std::string& status, const std::string& more) {
    const std::string result = R"({"status": ")" + status +
                               R"(", "phase": "done", "steps": 3000, "updates": 520, )" +
                               R"("wall_s": 83.2, "checkpoint": "checkpoints/520")" + more + "}\n";
    EXPECT_TRUE(run->storage->WriteAtomic("result.json", result).ok());
  };
  ASSERT_TRUE(run->storage->WriteAtomic("metrics.jsonl", "{\"actor/steps\": 3000}\n").ok());
  end("ok", R"(, "final_return_mean": 9.3, "final_return_std": 0.78, "final_return_min": 8,
               "final_return_max": 11, "final_episodes": 100)");
  const std::string json = Status(run->path, true).out;
  EXPECT_EQ(KeysOf(json), live);
  const auto view = ParseJson(json);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(*view->String("state"), "ended");
  EXPECT_EQ(*view->Integer("steps"), 3000);
  EXPECT_EQ(*view->Integer("updates"), 520);
  EXPECT_EQ(view->Find("return_mean")->number, 9.3);
  EXPECT_EQ(view->Find("metrics")->Find("actor/steps")->number, 3000);
  EXPECT_EQ(*view->Find("result")->String("status"), "ok");
  EXPECT_EQ(Status(run->path).out,
            "the run has ended: 3000 of 10000 agent steps\n"
            "  score           9.30 ± 0.78 over 100 episodes (min 8.00, max 11.00)\n"
            "  updates         520\n"
            "  time            1 min 23 s\n"
            "  checkpoint      checkpoints/520\n"
            "  version         \n");
  end("learner-0 failed 2 times\\u001b[2J", "");
  EXPECT_EQ(KeysOf(Status(run->path, true).out), live);
  EXPECT_NE(Status(run->path).out.find("  reason          learner-0 failed 2 times [2J\n"),
            std::string::npos);
}

TEST(StatusTest, ReportsRunKilledBeforeListening) {
  const TempFolder folder;
  std::string path;
  {
    auto run = OpenRunFolder(RunConfig(folder, FleetMode::kProcesses), FolderUse::kFresh);
    ASSERT_TRUE(run.ok());
    ASSERT_TRUE(BeginRun(*run).ok());
    path = run->path;
    const Said said = Status(path);
    EXPECT_EQ(said.code, kExitFailed);
    EXPECT_NE(said.error.find("is alive"), std::string::npos) << said.error;
  }
  EXPECT_NE(Status(path).error.find("was killed"), std::string::npos);
}

// It was said to be killed.
TEST(StatusTest, ReportsStoppedRun) {
  const TempFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    auto run = OpenRunFolder(RunConfig(folder, FleetMode::kProcesses), FolderUse::kFresh);
    if (!run.ok() || !BeginRun(*run).ok()) _exit(1);
    raise(SIGSTOP);
    _exit(0);
  }
  ASSERT_GT(child, 0);
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(state));
  const Said said = Status(folder.path() + "/run");
  kill(child, SIGKILL);
  waitpid(child, &state, 0);
  EXPECT_EQ(said.code, kExitFailed);
  const std::string part = fmt::format("kill -CONT {}", child);
  EXPECT_NE(said.error.find(part), std::string::npos) << said.error;
  EXPECT_EQ(said.error.find("killed"), std::string::npos) << said.error;
}

TEST(PlayTest, RejectsOutOfRangeNumbers) {
  for (const double epsilon : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(Evaluate({.path = "/nowhere", .epsilon = epsilon}), kExitUsage);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("from 0 to 1"), std::string::npos);
  }
  for (const double fps : {0.0, -1.0, 1e-9, 1e9, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(Play({.path = "/nowhere", .frames_per_s = fps}), kExitUsage);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("--fps"), std::string::npos);
  }
}

std::ptrdiff_t Count(const std::string& text, const std::string& part) {
  std::ptrdiff_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

// It ignored the terminal's size.
TEST(HalfBlocksTest, ScalesPictureToTerminal) {
  const Picture picture{
      .width = 80, .height = 60, .rgb = std::vector<std::uint8_t>(80 * 60 * 3, 7)};
  for (const auto& [columns, rows] : {std::pair{80, 30}, std::pair{200, 100}, std::pair{80, 23},
                                      std::pair{20, 30}, std::pair{5, 3}, std::pair{1, 1}}) {
    const std::string text = HalfBlocks(picture, columns, rows);
    const std::ptrdiff_t lines = Count(text, "\n");
    EXPECT_GE(lines, 1);
    EXPECT_LE(lines, rows);
    EXPECT_EQ(Count(text, "▀") % lines, 0);
    EXPECT_LE(Count(text, "▀") / lines, columns);
    if (columns >= 80 && rows >= 30) {
      EXPECT_EQ(Count(text, "▀"), 80 * 30);
    }
  }
}

TEST(HalfBlocksTest, ShowsLastLineOfOddHeight) {
  const Picture picture{.width = 1, .height = 3, .rgb = {1, 1, 1, 2, 2, 2, 3, 3, 3}};
  EXPECT_NE(HalfBlocks(picture, 80, 24).find("38;2;3;3;3m"), std::string::npos);
}

}  // namespace
}  // namespace troop
