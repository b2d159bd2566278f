// Child processes that record episodes for the dashboard.
#include "apps/monitor/episode_recorder.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "fleet/launcher/subprocess.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPatience = Seconds(120);  // time limit of a recording
constexpr std::size_t kTextMax = 500;         // bytes of output that are kept

// The first line of a file, truncated; empty if the file is missing.
std::string FirstLine(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line.substr(0, kTextMax);
}

}  // namespace

// A recording in progress is killed, not awaited: it may take minutes.
EpisodeRecorder::~EpisodeRecorder() {
  if (process_ != 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

// The number separates the files of recordings, also of a run that is recorded again.
std::string EpisodeRecorder::File(std::int64_t number, const char* suffix) const {
  return fmt::format("{}/{}.{}", folder_, number, suffix);
}

// The folder is created at the first recording.
Status EpisodeRecorder::Start(Time now, const std::string& run) {
  if (process_ != 0) {
    return FailedPrecondition("an episode is already being recorded; wait until it is done");
  }
  if (folder_.empty()) {
    std::error_code error;
    std::string folder = (fs::temp_directory_path(error) / "troop-episodes-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) {  // creates it with mode 0700
      return Unavailable("cannot create the folder {} for episodes: {}; set TMPDIR", folder,
                         strerror(errno));
    }
    folder_ = folder;
  }
  const std::int64_t number = ++number_;
  // The number is the seed too, so each recording shows another episode.
  TROOP_ASSIGN_OR_RETURN(process_, StartChild(program_,
                                              {"troop", "play", run, "--gif", File(number, "gif"),
                                               "--fps", "30", "--seed", std::to_string(number)},
                                              File(number, "log"), SIGKILL));
  // At most kKept runs have a recording, and each only its newest.
  if (!episodes_.contains(run) && episodes_.size() >= kKept) {
    const auto oldest = std::ranges::min_element(
        episodes_, {}, [](const auto& episode) { return episode.second.number; });
    std::error_code ignored;
    fs::remove(File(oldest->second.number, "gif"), ignored);
    episodes_.erase(oldest);
  }
  run_ = run;
  give_up_ = now + kPatience;
  Episode& episode = episodes_[run];
  std::error_code ignored;
  if (episode.number > 0) fs::remove(File(episode.number, "gif"), ignored);
  episode = {.number = number, .state = "recording", .text = ""};
  return Status::Ok();
}

// Reaps the player without blocking and settles the state of its episode.
void EpisodeRecorder::Poll(Time now) {
  if (process_ == 0) return;
  int wait_status = 0;
  // Still running: kill it at the time limit.
  if (waitpid(process_, &wait_status, WNOHANG) != process_) {
    if (now < give_up_) return;
    kill(process_, SIGKILL);
    waitpid(process_, &wait_status, 0);
    return End(false, fmt::format("the episode took longer than {:.0f} s", ToSeconds(kPatience)));
  }
  const std::string log = File(number_, "log");
  std::error_code error;
  // Ready: exit code 0 and a GIF of acceptable size. The log holds the player's first line.
  const bool done = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0 &&
                    fs::file_size(File(number_, "gif"), error) <= kGifBytesMax && !error;
  if (done) return End(true, FirstLine(log));
  // Failed: the last line of the log is the player's error message.
  if (error || !WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0) {
    return End(false, fmt::format("{} ({})", LastLine(log).substr(0, kTextMax),
                                  DescribeExit(wait_status)));
  }
  End(false, fmt::format("the GIF is larger than {} MiB", kGifBytesMax >> 20));
}

// The log is not needed any more: its useful line is in `text`.
void EpisodeRecorder::End(bool done, std::string text) {
  process_ = 0;
  Episode& episode = episodes_[run_];
  episode.state = done ? "ready" : "failed";
  episode.text = std::move(text);
  std::error_code ignored;
  fs::remove(File(number_, "log"), ignored);
}

// States: none, recording, ready, failed. The number lets the page notice a new recording.
std::string EpisodeRecorder::Json(const std::string& run) const {
  const auto found = episodes_.find(run);
  if (found == episodes_.end()) {
    return JsonObject().Add("state", "none").Add("number", 0).Add("text", "").str();
  }
  return JsonObject()
      .Add("state", found->second.state)
      .Add("number", found->second.number)
      .Add("text", found->second.text)
      .str();
}

// The size limit also bounds what a player can make this process read.
Result<Buffer> EpisodeRecorder::Gif(const std::string& run) const {
  const auto found = episodes_.find(run);
  if (found == episodes_.end() || found->second.state != "ready") {
    return NotFound("no episode of this run is recorded");
  }
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(folder_));
  return storage->Read(fmt::format("{}.gif", found->second.number), kGifBytesMax);
}

}  // namespace troop
