// fork and exec of role processes and of helper programs (srun, sbatch, scontrol).
#include "fleet/launcher/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace troop {
namespace {

// Runs between fork and exec: async-signal-safe calls only.
[[noreturn]] void Become(const char* program, char* const* argv, const char* log, pid_t parent,
                         int signal_at_end) {
  // The kernel sends this signal when the parent dies, so a killed supervisor leaves no role.
  prctl(PR_SET_PDEATHSIG, signal_at_end);
  if (getppid() != parent) _exit(1);  // the parent died before the line above
  setpgid(0, 0);
  // Without a log file the role still runs, with the output of its parent.
  const int file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file >= 0) {
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
  }
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  // 127: the shell's code for a program that can't be executed.
  execv(program, argv);
  _exit(127);
}

}  // namespace

// The new process group keeps a terminal's signals away from the child.
Result<pid_t> StartChild(const std::string& program, std::vector<std::string> words,
                         const std::string& log, int signal_at_end) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process == 0) Become(program.c_str(), argv.data(), log.c_str(), parent, signal_at_end);
  if (process < 0) {
    return ResourceExhausted(
        "fork failed: {}; raise the process limit (ulimit -u), or start fewer processes",
        strerror(errno));
  }
  return process;
}

// Like execvp, but in the parent, so that a missing program is a proper error.
std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const path = getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// Steps: prepare the arguments, fork, read until the end or the deadline, kill, reap.
Result<ProgramResult> RunProgram(const std::vector<std::string>& words, Duration patience) {
  const std::string program = FindProgram(words[0]);
  if (program.empty()) return NotFound("{} is not in PATH", words[0]);
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  int pipe_ends[2] = {-1, -1};
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    return ResourceExhausted("pipe failed: {}; raise the limit of open files (ulimit -n)",
                             strerror(errno));
  }
  // The arguments are prepared before fork: the child may not allocate.
  const pid_t process = fork();
  if (process == 0) {
    dup2(pipe_ends[1], STDOUT_FILENO);
    dup2(pipe_ends[1], STDERR_FILENO);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  // The child must have the only write end: otherwise the read below never reaches end of file.
  close(pipe_ends[1]);
  ProgramResult ended;
  const SystemClock clock;
  const Time end = clock.Now() + patience;
  constexpr std::size_t kOutputMax = 1 << 20;
  // Reads until end of file or the deadline; output beyond the limit is discarded.
  bool open = process > 0;
  while (open && clock.Now() < end) {
    pollfd ready{.fd = pipe_ends[0], .events = POLLIN, .revents = 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.Now()).count();
    if (poll(&ready, 1, int(std::clamp<std::int64_t>(left, 0, 1000))) <= 0) continue;
    char bytes[4096];
    const ssize_t got = read(pipe_ends[0], bytes, sizeof bytes);
    open = got > 0 || (got < 0 && errno == EINTR);
    if (got > 0 && ended.output.size() < kOutputMax) ended.output.append(bytes, std::size_t(got));
  }
  close(pipe_ends[0]);
  if (process < 0) return ResourceExhausted("fork failed: {}", strerror(errno));
  // `open`: the deadline passed before the program closed its output.
  if (open) kill(process, SIGKILL);
  int status = 0;
  waitpid(process, &status, 0);
  if (open) {
    return DeadlineExceeded("{} did not end within {:g} s", words[0], ToSeconds(patience));
  }
  // 128 + signal, as shells report it.
  ended.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ended;
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return fmt::format("killed by signal {} ({})", WTERMSIG(wait_status),
                       strsignal(WTERMSIG(wait_status)));
  }
  return fmt::format("exit code {}", WEXITSTATUS(wait_status));
}

// Reads the last 2,000 bytes and searches them backward, line by line.
std::string LastLine(const std::string& path) {
  std::ifstream file(path, std::ios::ate | std::ios::binary);
  if (!file) return "none";
  const std::streamoff size = file.tellg();
  std::string tail(std::size_t(std::min<std::streamoff>(size, 2000)), '\0');
  file.seekg(size - std::streamoff(tail.size()));
  file.read(tail.data(), std::streamsize(tail.size()));
  // srun's own lines ("srun: error: n4: task 0: Exited with exit code 5") lack the reason.
  std::string last;
  while (!tail.empty()) {
    const std::string line = tail.substr(tail.rfind('\n') + 1);
    tail.resize(tail.size() - line.size() - (line.size() < tail.size() ? 1 : 0));
    if (line.empty()) continue;
    if (!line.starts_with("srun: ")) return line;
    if (last.empty()) last = line;
  }
  return last.empty() ? "none" : last;
}

}  // namespace troop
