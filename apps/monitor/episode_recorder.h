#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// Records episodes of a run's newest checkpoint on request. A child process runs `troop play
// --gif`, so that a crashing environment cannot harm this process. One recording at a time, with a
// time limit. The newest ones are kept in a private folder, which the destructor removes. Owner:
// one thread at a time.
class EpisodeRecorder {
 public:
  static constexpr std::size_t kKept = 8;  // runs
  static constexpr std::size_t kGifBytesMax = 32 << 20;
  // `program`: path of the troop executable.
  explicit EpisodeRecorder(std::string program = "/proc/self/exe") : program_(std::move(program)) {}
  ~EpisodeRecorder();
  EpisodeRecorder(const EpisodeRecorder&) = delete;

  // Starts a recording. Errors: kFailedPrecondition: one is in progress; kUnavailable: no folder or
  // no process.
  Status Start(Time now, const std::string& run);
  // Collects a finished recording, or kills one that takes too long. Call it regularly.
  void Poll(Time now);
  // State of a run's recording: {"state": "none" | "recording" | "ready" | "failed", "number",
  // "text"}. `text` describes the episode or the failure. `number` is unique per recording.
  std::string Json(const std::string& run) const;
  // The GIF of a ready recording. Errors: kNotFound: none is ready.
  Result<Buffer> Gif(const std::string& run) const;

 private:
  struct Episode {
    std::int64_t number = 0;
    std::string state, text;
  };
  // Ends the current recording as ready or failed.
  void End(bool done, std::string text);
  std::string File(std::int64_t number, const char* suffix) const;

  const std::string program_;
  std::string folder_;
  std::map<std::string, Episode> episodes_;  // by run
  std::int64_t number_ = 0;
  pid_t process_ = 0;  // of the current recording; 0: none
  std::string run_;    // of the current recording
  Time give_up_{};
};

}  // namespace troop
