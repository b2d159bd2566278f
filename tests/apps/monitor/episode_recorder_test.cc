#include "apps/monitor/episode_recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/storage/json.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Players are small scripts: "play RUN --gif FILE ..." is what they get.
class EpisodeRecorderTest : public testing::Test {
 protected:
  EpisodeRecorderTest() {
    fs::create_directories(temp_.path() + "/tmp");
    setenv("TMPDIR", (temp_.path() + "/tmp").c_str(), 1);
  }
  ~EpisodeRecorderTest() override { unsetenv("TMPDIR"); }
  std::string Player(const std::string& text) {
    const std::string path = temp_.path() + "/player";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    fs::permissions(path, fs::perms(0700));
    return path;
  }
  static std::string Word(const EpisodeRecorder& recorder, const char* key,
                          const std::string& run = "/run") {
    return *ParseJson(recorder.Json(run))->String(key);
  }
  // Until it no longer records.
  void Finish(EpisodeRecorder* recorder, const std::string& run = "/run") {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (Word(*recorder, "state", run) == "recording") {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      recorder->Poll(Time{});
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  bool FolderLeft() { return !fs::is_empty(temp_.path() + "/tmp"); }

  TempFolder temp_;
};

TEST_F(EpisodeRecorderTest, ReturnsRecordingAndOutputOfPlayer) {
  {
    EpisodeRecorder recorder(Player(R"(echo "return 12 of $2"; printf GIF89a > "$4")"));
    EXPECT_EQ(Word(recorder, "state"), "none");
    ASSERT_TRUE(recorder.Start(Time{}, "/run").ok());
    Finish(&recorder);
    EXPECT_EQ(Word(recorder, "state"), "ready");
    EXPECT_EQ(Word(recorder, "text"), "return 12 of /run");
    EXPECT_EQ(recorder.Gif("/run")->text(), "GIF89a");
    EXPECT_EQ(recorder.Gif("/other").status().code(), Code::kNotFound);
    EXPECT_TRUE(FolderLeft());
  }
  EXPECT_FALSE(FolderLeft());
}

TEST_F(EpisodeRecorderTest, ReportsWhyRecordingFailed) {
  EpisodeRecorder recorder(Player("echo 'troop: no checkpoint yet' >&2; exit 2"));
  ASSERT_TRUE(recorder.Start(Time{}, "/run").ok());
  Finish(&recorder);
  EXPECT_EQ(Word(recorder, "state"), "failed");
  EXPECT_EQ(Word(recorder, "text"), "troop: no checkpoint yet (exit code 2)");
  EXPECT_EQ(recorder.Gif("/run").status().code(), Code::kNotFound);
}

TEST_F(EpisodeRecorderTest, RecordsOneAtATimeAndKillsAtDeadline) {
  EpisodeRecorder recorder(Player("exec sleep 1000"));
  ASSERT_TRUE(recorder.Start(Time{}, "/run").ok());
  EXPECT_EQ(recorder.Start(Time{}, "/other").code(), Code::kFailedPrecondition);
  recorder.Poll(Time{} + Seconds(119));
  EXPECT_EQ(Word(recorder, "state"), "recording");
  recorder.Poll(Time{} + Seconds(121));
  EXPECT_EQ(Word(recorder, "state"), "failed");
  EXPECT_NE(Word(recorder, "text").find("120 s"), std::string::npos);
  EXPECT_TRUE(recorder.Start(Time{}, "/other").ok());  // which its end kills
}

TEST_F(EpisodeRecorderTest, KeepsNewestRecordings) {
  EpisodeRecorder recorder(Player(R"(echo ok; printf GIF89a > "$4")"));
  for (std::size_t i = 0; i <= EpisodeRecorder::kKept; ++i) {
    const std::string run = "/run-" + std::to_string(i);
    ASSERT_TRUE(recorder.Start(Time{}, run).ok());
    Finish(&recorder, run);
  }
  EXPECT_EQ(Word(recorder, "state", "/run-0"), "none");
  EXPECT_EQ(Word(recorder, "state", "/run-1"), "ready");
  std::size_t files = 0;
  for (const auto& file : fs::recursive_directory_iterator(temp_.path() + "/tmp")) {
    files += file.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, EpisodeRecorder::kKept);
}

}  // namespace
}  // namespace troop
