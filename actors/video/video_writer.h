#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/node.h"
#include "core/graphics/picture.h"
#include "core/storage/storage.h"

namespace troop {

// Writes videos of evaluation episodes (evaluator.video_every) to the folder videos/ of the run,
// one at a time in a job of the executor: <updates>.gif, and <updates>.mp4 if the program ffmpeg
// can be run. Keeps the newest videos. A failure is logged once per kind, and never ends the run.
// Owner: the node's thread.
class VideoWriter {
 public:
  static constexpr char kFolder[] = "videos";
  static constexpr std::size_t kBytesMax = std::size_t{32} << 20;  // size of one file
  struct Options {
    Executor* executor = nullptr;
    Storage* run = nullptr;         // the run folder; nullptr: nothing is written
    std::int64_t kept = 10;         // videos
    std::string ffmpeg = "ffmpeg";  // looked up in PATH; empty: no MP4
  };
  explicit VideoWriter(Options options) : options_(std::move(options)) {}

  bool enabled() const { return options_.run != nullptr; }
  // Submits the job. No frames: only a warning that the environment draws no pictures. REQUIRES:
  // enabled(), not busy().
  void Start(std::uint64_t updates, std::vector<Picture> frames);
  // True until a call of Poll after the end of the job.
  bool busy() const { return job_ != nullptr; }
  void Poll();

 private:
  struct Job {
    Executor::Job id = 0;
    std::uint64_t updates = 0;
    std::vector<Picture> frames;
    Status gif, mp4;
  };
  // Runs in the job.
  static void Write(const Options& options, Job* job);

  const Options options_;
  std::shared_ptr<Job> job_;  // shared with the executor
  bool gif_failed_ = false, mp4_failed_ = false;
};

// Name of the file in the run folder: "videos/000000012345.gif".
std::string VideoName(std::uint64_t updates, std::string_view extension);

}  // namespace troop
