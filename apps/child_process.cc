#include "apps/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace troop {
namespace {

// Between fork and exec: only calls that are safe there.
[[noreturn]] void Become(const char* program, char* const* argv, const char* log, pid_t parent,
                         int signal_at_end) {
  prctl(PR_SET_PDEATHSIG, signal_at_end);
  if (getppid() != parent) _exit(1);  // the parent died before the line above
  setpgid(0, 0);
  const int file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file >= 0) {
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
  }
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  execv(program, argv);
  _exit(127);
}

}  // namespace

Result<pid_t> StartChild(const std::string& program, std::vector<std::string> words,
                         const std::string& log, int signal_at_end) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process == 0) Become(program.c_str(), argv.data(), log.c_str(), parent, signal_at_end);
  if (process < 0) {
    return ResourceExhausted("no process: {}; raise the process limit (ulimit -u) or start fewer",
                             strerror(errno));
  }
  return process;
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return fmt::format("killed by signal {} ({})", WTERMSIG(wait_status),
                       strsignal(WTERMSIG(wait_status)));
  }
  return fmt::format("exit code {}", WEXITSTATUS(wait_status));
}

std::string LastLine(const std::string& path) {
  std::ifstream file(path, std::ios::ate | std::ios::binary);
  if (!file) return "none";
  const std::streamoff size = file.tellg();
  std::string tail(std::size_t(std::min<std::streamoff>(size, 2000)), '\0');
  file.seekg(size - std::streamoff(tail.size()));
  file.read(tail.data(), std::streamsize(tail.size()));
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  tail.erase(0, tail.rfind('\n') + 1);
  return tail.empty() ? "none" : tail;
}

}  // namespace troop
