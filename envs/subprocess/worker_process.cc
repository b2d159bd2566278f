// Starts and ends worker processes: program lookup, fork and exec with fixed descriptors.

#include "envs/subprocess/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>
#include <utility>

#include "envs/subprocess/protocol.h"

extern char** environ;

namespace troop {
namespace {

namespace fs = std::filesystem;

// Lowest number for the child's descriptors before dup2 puts them in place, above kSocket and
// kMemory.
constexpr int kAside = 10;

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int get() const { return number_; }
  int Release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

// Path of this program; it ends in " (deleted)" if the file was replaced by an update.
fs::path Self() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

// Value of an environment variable; "" if it is not set.
std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

// Sets a variable; with `weak`, only if it is not set yet.
void Set(std::vector<std::string>* environment, const std::string& name, const std::string& value,
         bool weak = false) {
  const auto has = [&](const std::string& line) { return line.starts_with(name + "="); };
  const auto at = std::ranges::find_if(*environment, has);
  if (at == environment->end())
    environment->push_back(name + "=" + value);
  else if (!weak)
    *at = name + "=" + value;
}

// A copy, since another thread may call setenv later.
std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> lines;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) lines.push_back(*line);
  return lines;
}

// True for an executable regular file; access alone is also true for folders.
bool Runs(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

// Searches PATH like a shell; "" if there is no such program.
std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return Runs(name) ? name : "";
  const std::string path = Variable("PATH");
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (Runs(candidate)) return candidate;
    begin = end + 1;
  }
  return "";
}

// Returns the folder that contains troop_env/.
Result<std::string> PackageFolder() {
  std::vector<fs::path> places;
  if (const std::string own = Variable("TROOP_PYTHON_PATH"); !own.empty()) {
    places = {own};
  } else {
    // An installed program first, then the source tree of a development build.
    places = {Self().parent_path() / "../share/troop/python"};
    const std::string_view sources = TROOP_PYTHON_SOURCES;
    if (!sources.empty()) places.emplace_back(sources);
  }
  for (const fs::path& place : places) {
    std::error_code error;
    if (fs::exists(place / "troop_env/worker.py", error)) return place.lexically_normal().string();
  }
  return NotFound(
      "no Python package troop_env in {}; set TROOP_PYTHON_PATH to the folder that contains it "
      "(share/troop/python of an installed Troop)",
      places.front().lexically_normal().string());
}

// NULL-terminated list for execve. It points into `texts`, which must outlive it.
std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Closes all descriptors from `first` on; `limit` is for kernels without close_range (before 5.9).
void CloseFrom(int first, int limit) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, unsigned(first), ~0U, 0U) == 0) return;
#endif
  for (int i = first; i < limit; ++i) close(i);
}

// Runs between fork and exec: only async-signal-safe calls, no allocation.
struct Child {
  const char* program;
  char* const* argv;
  char* const* environment;
  int socket, memory, limit;
  pid_t parent;

  [[noreturn]] void Become() const {
    // The worker must not outlive the actor.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // the parent died before prctl took effect
    setpgid(0, 0);
    // Signals blocked in the parent would stay blocked after exec.
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    // Standard output belongs to the parent's reports.
    dup2(STDERR_FILENO, STDOUT_FILENO);
    dup2(socket, worker::kSocket);
    dup2(memory, worker::kMemory);
    CloseFrom(worker::kMemory + 1, limit);
    execve(program, argv, environment);
    // execve failed: report errno to the owner.
    char message[1 + sizeof(int)] = {worker::kExec};
    const int error = errno;
    memcpy(message + 1, &error, sizeof(error));
    send(worker::kSocket, message, sizeof(message), MSG_NOSIGNAL);
    _exit(127);
  }
};

// Describes a wait status for messages about a dead worker.
std::string DescribeEnd(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

// The package is added to PYTHONPATH before the user's entries, so that it is the one that is
// loaded.
Result<WorkerProgram> PythonWorker(const std::string& python) {
  const std::string path = FindProgram(python);
  if (path.empty()) {
    return NotFound("env.python: no program \"{}\"; give an interpreter, such as /usr/bin/python3",
                    python);
  }
  TROOP_ASSIGN_OR_RETURN(const std::string folder, PackageFolder());
  WorkerProgram program{path, {path, "-m", "troop_env.worker"}, OwnEnvironment()};
  const std::string old = Variable("PYTHONPATH");
  Set(&program.environment, "PYTHONPATH", old.empty() ? folder : folder + ":" + old);
  // One thread per environment: a fleet already has one actor per core.
  for (const char* threads : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}) {
    Set(&program.environment, threads, "1", true);
  }
  return program;
}

// /proc/self/exe still is the running program after its file was replaced or removed.
Result<WorkerProgram> TroopWorker() {
  // A program other than troop (a test, a benchmark) names it by TROOP_PROGRAM.
  std::string path = Variable("TROOP_PROGRAM");
  const std::string self = Self().filename();
  if (self == "troop" || self == "troop (deleted)") path = "/proc/self/exe";
  if (!path.empty() && !Runs(path) && path != "/proc/self/exe") {
    return NotFound("TROOP_PROGRAM is {}, which is not an executable file", path);
  }
  if (path.empty()) {
    return NotFound(
        "a worker process needs the program troop: set TROOP_PROGRAM to its path, or env.isolation "
        "= \"none\"");
  }
  return WorkerProgram{path, {"troop", "env-worker"}, OwnEnvironment()};
}

WorkerProcess& WorkerProcess::operator=(WorkerProcess&& other) noexcept {
  if (this == &other) return *this;
  End({});
  socket_ = std::exchange(other.socket_, -1);
  process_ = std::exchange(other.process_, 0);
  return *this;
}

// Steps: socket pair, duplicates of the child's descriptors, argument lists, fork.
Result<WorkerProcess> WorkerProcess::Start(const WorkerProgram& program, int memory) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ResourceExhausted("cannot create a socket for a worker process: {}", strerror(errno));
  }
  Descriptor ours(ends[0]), theirs(ends[1]);
  // The originals may have the numbers kSocket or kMemory, which dup2 would then overwrite.
  Descriptor socket_aside(fcntl(theirs.get(), F_DUPFD_CLOEXEC, kAside));
  Descriptor memory_aside(fcntl(memory, F_DUPFD_CLOEXEC, kAside));
  if (socket_aside.get() < 0 || memory_aside.get() < 0) {
    return ResourceExhausted("cannot duplicate a descriptor for a worker process: {}",
                             strerror(errno));
  }
  std::vector<std::string> arguments = program.arguments, environment = program.environment;
  // Everything that the child needs is allocated before fork.
  const std::vector<char*> argv = Pointers(&arguments), envp = Pointers(&environment);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const Child child{.program = program.path.c_str(),
                    .argv = argv.data(),
                    .environment = envp.data(),
                    .socket = socket_aside.get(),
                    .memory = memory_aside.get(),
                    .limit = int(std::min<rlim_t>(limit.rlim_cur, 1 << 16)),
                    .parent = getpid()};
  const pid_t process = fork();
  if (process == 0) child.Become();
  if (process < 0) {
    return ResourceExhausted(
        "cannot fork a worker process: {}; raise the process limit (ulimit -u)", strerror(errno));
  }
  setpgid(process, process);  // child and parent both call it: kill(-process) must find the group
  WorkerProcess worker;
  worker.socket_ = ours.Release();
  worker.process_ = process;
  return worker;
}

// WNOWAIT leaves the process a zombie, so that its id is not reused before End.
bool WorkerProcess::ended() const {
  siginfo_t info{};
  return process_ > 0 && waitid(P_PID, id_t(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

// A worker exits when its socket reaches the end of file.
void WorkerProcess::Hang() {
  if (socket_ >= 0) close(std::exchange(socket_, -1));
}

// Waits up to `patience` for an exit, then kills the process group. Returns how it ended by itself.
std::string WorkerProcess::End(Duration patience) {
  Hang();
  if (process_ <= 0) return "";
  const SystemClock clock;
  const Time end = clock.Now() + patience;
  bool itself = ended();
  while (!itself && clock.Now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    itself = ended();
  }
  const pid_t process = std::exchange(process_, 0);
  kill(-process, SIGKILL);  // including its own children
  kill(process, SIGKILL);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return itself ? DescribeEnd(status) : "";
}

}  // namespace troop
