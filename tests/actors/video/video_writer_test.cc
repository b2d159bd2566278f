#include "actors/video/video_writer.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "actors/video/episode_frames.h"
#include "actors/video/mp4_encoder.h"
#include "core/base/executor.h"
#include "core/storage/memory_storage.h"
#include "tests/core/temp_folder.h"
#include "tests/testing/captured_log.h"

namespace troop {
namespace {

// A picture of one color.
Picture Plain(std::uint8_t shade, int width = 5, int height = 3) {
  return {.width = width,
          .height = height,
          .rgb = std::vector<std::uint8_t>(std::size_t(3 * width * height), shade)};
}

// A program of this test in place of ffmpeg.
std::string Script(const TempFolder& folder, const std::string& text) {
  const std::string path = folder.path() + "/ffmpeg";
  std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
  chmod(path.c_str(), 0755);
  return path;
}

// Writes a video and returns the log.
std::string Written(VideoWriter* writer, std::uint64_t updates, std::vector<Picture> frames) {
  const CapturedLog log;
  writer->Start(updates, std::move(frames));
  writer->Poll();
  EXPECT_FALSE(writer->busy());
  return log.text();
}

std::size_t Count(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(EpisodeFramesTest, StopsAtEpisodesFramesAndOtherSizes) {
  EpisodeFrames episodes(2, 100);
  episodes.Add(Plain(1));
  episodes.EndEpisode();
  EXPECT_FALSE(episodes.done());
  episodes.Add(Plain(2));
  episodes.EndEpisode();
  EXPECT_TRUE(episodes.done());
  EXPECT_EQ(episodes.Take().size(), 2u);
  EpisodeFrames frames(9, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(frames.done());
    frames.Add(Plain(std::uint8_t(i)));
  }
  EXPECT_TRUE(frames.done());
  EXPECT_EQ(frames.Take().size(), 3u);
  EpisodeFrames sizes(9, 9);
  sizes.Add(Plain(1));
  sizes.Add(Plain(1, 6));
  EXPECT_TRUE(sizes.done());
  EXPECT_EQ(sizes.Take().size(), 1u);
  EpisodeFrames none(1, 9);
  none.Add({});
  EXPECT_TRUE(none.done());
  EXPECT_TRUE(none.Take().empty());
}

// 128 MiB of pixels: about 10 pictures of 4096 x 1024.
TEST(EpisodeFramesTest, StopsAtBytes) {
  EpisodeFrames frames(1, 20000);
  int count = 0;
  for (; !frames.done(); ++count) frames.Add(Plain(0, 4096, 1024));
  EXPECT_EQ(count, 10);
}

// The width and height are in bytes 6 to 9 of a GIF.
TEST(VideoWriterTest, KeepsNewestVideos) {
  MemoryStorage run;
  InlineExecutor executor;
  VideoWriter writer({.executor = &executor, .run = &run, .kept = 2, .ffmpeg = ""});
  for (const std::uint64_t updates : {5, 70, 600}) {
    EXPECT_EQ(Written(&writer, updates, {Plain(1), Plain(9)}), "");
  }
  EXPECT_EQ(*run.List("videos"),
            (std::vector<std::string>{"000000000070.gif", "000000000600.gif"}));
  const Buffer gif = *run.Read("videos/000000000600.gif", 1 << 20);
  EXPECT_EQ(gif.text().substr(0, 10), std::string_view("GIF89a\5\0\3\0", 10));
}

TEST(VideoWriterTest, WarnsOnceAboutEnvironmentWithoutPictures) {
  MemoryStorage run;
  InlineExecutor executor;
  VideoWriter writer({.executor = &executor, .run = &run});
  EXPECT_EQ(Count(Written(&writer, 1, {}), "the environment draws no pictures"), 1u);
  EXPECT_EQ(Written(&writer, 2, {}), "");
  EXPECT_TRUE(run.List("videos")->empty());
}

// The program gets all pixels, and its file becomes the video.
TEST(VideoWriterTest, WritesWhatFfmpegEncodes) {
  const TempFolder folder;
  MemoryStorage run;
  InlineExecutor executor;
  const std::string program = Script(folder, "for last; do :; done; echo \"$@\" > " +
                                                 folder.path() + "/arguments; cat > \"$last\"");
  VideoWriter writer({.executor = &executor, .run = &run, .ffmpeg = program});
  std::vector<Picture> frames;
  for (int i = 0; i < 50; ++i) frames.push_back(Plain(std::uint8_t(i), 200, 100));
  std::string pixels;
  for (const Picture& frame : frames) pixels.append(frame.rgb.begin(), frame.rgb.end());
  EXPECT_EQ(Written(&writer, 3, frames), "");
  EXPECT_TRUE(run.Read("videos/000000000003.mp4", 1 << 24)->text() == pixels);
  EXPECT_TRUE(run.Exists("videos/000000000003.gif"));
  std::string arguments;
  std::getline(std::ifstream(folder.path() + "/arguments"), arguments);
  EXPECT_NE(arguments.find("-f rawvideo -pix_fmt rgb24 -s 200x100 -r 30 -i - "), std::string::npos)
      << arguments;
}

// It fails before or after it has read, or writes no file: the GIF is written, with one warning.
TEST(VideoWriterTest, FailingFfmpegLeavesGif) {
  for (const char* text : {"exit 3", "cat > /dev/null; exit 4", "kill -9 $$", "cat > /dev/null"}) {
    const TempFolder folder;
    MemoryStorage run;
    InlineExecutor executor;
    VideoWriter writer({.executor = &executor, .run = &run, .ffmpeg = Script(folder, text)});
    const std::vector<Picture> frames(30, Plain(7, 300, 200));
    EXPECT_EQ(Count(Written(&writer, 1, frames), "no MP4 video, only a GIF: "), 1u) << text;
    EXPECT_EQ(Written(&writer, 2, frames), "");
    EXPECT_EQ(*run.List("videos"),
              (std::vector<std::string>{"000000000001.gif", "000000000002.gif"}));
  }
}

TEST(Mp4EncoderTest, KillsProgramThatTakesTooLong) {
  const TempFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  for (const char* text : {"exec sleep 100", "cat > /dev/null; exec sleep 100"}) {
    const auto mp4 = EncodeMp4(Script(folder, text), std::vector<Picture>(30, Plain(7, 300, 200)),
                               30, Seconds(0.3));
    EXPECT_EQ(mp4.status().code(), Code::kUnavailable);
    EXPECT_NE(mp4.status().message().find("took longer than 0.3 s"), std::string::npos)
        << mp4.status().ToString();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(Mp4EncoderTest, FindsProgramsInPath) {
  const TempFolder folder;
  const std::string program = Script(folder, "exit 0");
  EXPECT_EQ(LocateProgram(program), program);
  EXPECT_EQ(LocateProgram(folder.path() + "/none"), "");
  EXPECT_EQ(LocateProgram(""), "");
  EXPECT_EQ(LocateProgram("no-such-program-of-troop"), "");
  EXPECT_NE(LocateProgram("sh"), "");
}

}  // namespace
}  // namespace troop
