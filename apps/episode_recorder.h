#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "core/buffer.h"
#include "core/status.h"
#include "core/time.h"

namespace troop {

// Records an episode of a run's newest checkpoint when somebody asks for it: `troop play --gif` as
// a process of its own, so that an environment that crashes takes nothing with it. One at a time,
// each with a time limit; the newest few are kept in a private folder, which goes with this object.
// Owner: one thread at a time.
class EpisodeRecorder {
 public:
  static constexpr std::size_t kKept = 8;  // runs
  static constexpr std::size_t kGifBytesMax = 32 << 20;
  // `program`: that plays.
  explicit EpisodeRecorder(std::string program = "/proc/self/exe") : program_(std::move(program)) {}
  ~EpisodeRecorder();
  EpisodeRecorder(const EpisodeRecorder&) = delete;

  // Errors: kFailedPrecondition: one is being recorded; kUnavailable: no folder, no process.
  Status Start(Time now, const std::string& run);
  // Notices what has ended, and ends what takes too long.
  void Poll(Time now);
  // {"state": "none" | "recording" | "ready" | "failed", "number", "text": what was played, or why
  // not}. Of a run, by path. `number` differs from one recording to the next.
  std::string Json(const std::string& run) const;
  Result<Buffer> Gif(const std::string& run) const;  // errors: kNotFound: none is ready

 private:
  struct Episode {
    std::int64_t number = 0;
    std::string state, text;
  };
  void End(bool done, std::string text);
  std::string File(std::int64_t number, const char* suffix) const;

  const std::string program_;
  std::string folder_;
  std::map<std::string, Episode> episodes_;  // by run
  std::int64_t number_ = 0;
  pid_t process_ = 0;  // 0: nobody plays
  std::string run_;    // of that one
  Time give_up_{};
};

}  // namespace troop
