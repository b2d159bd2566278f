// Implements MP4 encoding by a child process.
#include "actors/video/mp4_encoder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>
#include <utility>

#include "core/storage/storage.h"

extern char** environ;

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFileBytesMax = std::size_t{64} << 20;

// A folder that is removed with its files.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (fs::temp_directory_path() / "troop-video-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }  // empty: it cannot be created

 private:
  std::string path_;
};

// A child process with a socket as standard input; its output is discarded.
class Child {
 public:
  ~Child() {
    if (input_ >= 0) close(input_);
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  // Starts the program. Errors: kUnavailable.
  Status Start(const std::string& program, const std::vector<std::string>& arguments) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return Unavailable("cannot create a socket: {}", strerror(errno));
    }
    input_ = ends[0];
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
    argv.push_back(nullptr);
    // The child's end of the socket becomes its standard input; all other descriptors close.
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    for (const int output : {STDOUT_FILENO, STDERR_FILENO}) {
      posix_spawn_file_actions_addopen(&actions, output, "/dev/null", O_WRONLY, 0);
    }
    // Messages of the program are not shown: its exit code shows a failure.
    const int error =
        posix_spawn(&process_, program.c_str(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error == 0) return Status::Ok();
    process_ = 0;
    return Unavailable("cannot run {}: {}", program, strerror(error));
  }
  // Sends bytes before `end`; false: the child has exited or does not read.
  bool Send(std::span<const std::byte> bytes, Time end) {
    while (!bytes.empty()) {
      if (!Ready(end)) return false;
      // Without MSG_NOSIGNAL a child that has exited would end this process.
      const ssize_t sent = send(input_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
      bytes = bytes.subspan(std::size_t(std::max<ssize_t>(sent, 0)));
    }
    return true;
  }
  // Ends its input and waits for its exit until `end`; the exit status, -1: none.
  int Finish(Time end) {
    close(std::exchange(input_, -1));
    int status = 0;
    // Polled, because waitpid has no time limit.
    while (clock_.Now() < end) {
      const pid_t got = waitpid(process_, &status, WNOHANG);
      if (got == process_) {
        process_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return -1;
  }

 private:
  // Waits until the child reads, or until `end`.
  bool Ready(Time end) const {
    pollfd ready{input_, POLLOUT, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock_.Now());
    return left.count() > 0 && poll(&ready, 1, int(left.count())) > 0;
  }

  const SystemClock clock_;
  int input_ = -1;
  pid_t process_ = 0;
};

}  // namespace

std::string LocateProgram(const std::string& name) {
  if (name.empty()) return {};
  // A name with a slash is a path already.
  if (name.find('/') != name.npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* const path = getenv("PATH");
  // An empty entry of PATH is the working directory.
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::string folder(rest.substr(0, rest.find(':')));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    const std::string program = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    std::error_code ignored;
    if (fs::is_regular_file(program, ignored) && access(program.c_str(), X_OK) == 0) {
      return program;
    }
  }
  return {};
}

// Steps: start, send the frames, wait, read the file. yuv420p, which all players support, needs
// even sides: the filter pads them.
Result<Buffer> EncodeMp4(const std::string& ffmpeg, const std::vector<Picture>& frames,
                         double frames_per_s, Duration patience) {
  const ScratchFolder folder;
  if (folder.path().empty()) return Unavailable("no temporary folder can be created");
  const std::string file = folder.path() + "/video.mp4";
  Child child;
  TROOP_RETURN_IF_ERROR(
      child.Start(ffmpeg, {"-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s",
                           fmt::format("{}x{}", frames[0].width, frames[0].height), "-r",
                           fmt::format("{:g}", frames_per_s), "-i", "-", "-vf",
                           "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", file}));
  const Time end = SystemClock().Now() + patience;
  // After a failed write the rest is dropped, and the exit code has the cause.
  bool sent = true;
  for (const Picture& frame : frames) {
    sent = sent && child.Send(std::as_bytes(std::span(frame.rgb)), end);
  }
  const int code = child.Finish(end);
  if (code < 0) return Unavailable("{} took longer than {:g} s", ffmpeg, ToSeconds(patience));
  if (code != 0 || !sent) return Unavailable("{} ended with exit code {}", ffmpeg, code);
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(folder.path()));
  return storage->Read("video.mp4", kFileBytesMax);
}

}  // namespace troop
