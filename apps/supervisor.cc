#include "apps/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "apps/train.h"
#include "core/log.h"

namespace troop {
namespace {

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return fmt::format("killed by signal {} ({})", WTERMSIG(wait_status),
                       strsignal(WTERMSIG(wait_status)));
  }
  return fmt::format("exit code {}", WEXITSTATUS(wait_status));
}

// Between fork and exec: only calls that are safe there.
[[noreturn]] void Become(const char* program, char* const* argv, const char* log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent died before the line above
  setpgid(0, 0);                      // a terminal's Ctrl-C is for the supervisor alone
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

Supervisor::Supervisor(Options options, std::vector<FleetRole> roles)
    : options_(std::move(options)) {
  for (const FleetRole& role : roles) children_.push_back({.role = role});
}

void Supervisor::Add(FleetRole role) {
  if (std::ranges::find(children_, role, &Child::role) == children_.end()) {
    children_.push_back({.role = role});
  }
}

Supervisor::~Supervisor() {
  for (Child& child : children_) {
    if (child.process <= 0) continue;
    kill(child.process, SIGKILL);
    waitpid(child.process, nullptr, 0);  // a killed child is reaped at once
  }
}

std::string Supervisor::LogFile(FleetRole role) const {
  return fmt::format("{}/{}.log", options_.log_folder, PeerName(role.role, role.index));
}

void Supervisor::Start(Child* child, Time now) {
  std::vector<std::string> words{"troop",
                                 "role",
                                 std::string(RoleName(child->role.role)),
                                 "--index",
                                 std::to_string(child->role.index),
                                 "--coordinator",
                                 options_.coordinator,
                                 "--dead-after",
                                 fmt::format("{}", options_.config.fleet.dead_after_s)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string log = LogFile(child->role);
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process == 0) Become(options_.executable.c_str(), argv.data(), log.c_str(), parent);
  if (process < 0) {
    status_ = ResourceExhausted(
        "no process for {}: {}; raise the process limit (ulimit -u) or start "
        "fewer actors",
        PeerName(child->role.role, child->role.index), strerror(errno));
    return;
  }
  child->process = process;
  child->started = now;
}

std::vector<Supervisor::Exit> Supervisor::Tick(Time now, const Needed& needed) {
  std::vector<Exit> exits;
  for (Child& child : children_) {
    if (child.process > 0) {
      int wait_status = 0;
      if (waitpid(child.process, &wait_status, WNOHANG) != child.process) continue;
      exits.push_back(HandleExit(&child, wait_status, now, needed(child.role)));
    }
    const bool due = status_.ok() && child.process == 0 && now >= child.start_at;
    if (due && needed(child.role)) Start(&child, now);
  }
  return exits;
}

Supervisor::Exit Supervisor::HandleExit(Child* child, int wait_status, Time now, bool needed) {
  Exit exit{.role = child->role,
            .process = std::exchange(child->process, 0),
            .reason = DescribeExit(wait_status),
            .orderly = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0,
            .failed = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) != 0};
  CountFailure(child, now, !child->kill_reason.empty());
  if (!needed && exit.orderly) child->failures = 0;  // it was let go, and may be wanted again
  if (!child->kill_reason.empty()) exit.reason += ": " + std::exchange(child->kill_reason, {});
  const int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
  if (needed && (code == kExitUsage || code == kExitGaveUp)) {
    status_ = Aborted("{} {} ({}), which no restart cures: {}; see {}",
                      PeerName(child->role.role, child->role.index),
                      code == kExitUsage ? "refuses its command line or config" : "gave up",
                      exit.reason, LogTail(child->role), LogFile(child->role));
    LogError("{}", status_.message());
  } else if (needed) {
    ScheduleRestart(child, now, exit.reason + (exit.orderly ? ", before the run was over" : ""));
  } else if (!exit.orderly) {
    LogWarning("{} ended ({}); last words: {}", PeerName(child->role.role, child->role.index),
               exit.reason, LogTail(child->role));
  }
  return exit;
}

// Back-off spreads failures over any window of time, so they are counted in a row; only work ends
// the row. The silence of a role that hung was no work.
void Supervisor::CountFailure(Child* child, Time now, bool hung) {
  const auto& fleet = options_.config.fleet;
  const double worked_s = ToSeconds(now - child->started) - (hung ? fleet.hung_after_s : 0);
  if (worked_s >= fleet.restart_window_s) child->failures = 0;
  ++child->failures;
}

void Supervisor::ScheduleRestart(Child* child, Time now, const std::string& reason) {
  const std::string name = PeerName(child->role.role, child->role.index);
  const std::string last = LogTail(child->role);
  const auto& fleet = options_.config.fleet;
  if (child->failures > fleet.restarts_max) {
    status_ = Aborted(
        "{} failed {} times in a row, never working for {:g} s between (fleet.restarts_max = {}, "
        "fleet.restart_window_s), last: {}; its last words: {}; see {}",
        name, child->failures, fleet.restart_window_s, fleet.restarts_max, reason, last,
        LogFile(child->role));
    LogError("{}", status_.message());
    return;
  }
  constexpr double kWaitMax = 1e9;  // seconds, which a Time can still hold
  const double wait = std::min({fleet.backoff_max_s, kWaitMax,
                                fleet.backoff_first_s * std::pow(2, double(child->failures - 1))});
  child->start_at = now + Seconds(wait);
  ++restarts_;
  LogWarning("{} ended ({}); last words: {}; restart {} of at most {} in {:.1f} s", name, reason,
             last, child->failures, fleet.restarts_max, wait);
}

void Supervisor::Signal(int number) {
  for (const Child& child : children_) {
    if (child.process > 0) kill(child.process, number);
  }
}

void Supervisor::Kill(FleetRole role, pid_t process, const std::string& why) {
  for (Child& child : children_) {
    if (child.role != role || child.process != process || process <= 0) continue;
    child.kill_reason = why;
    kill(child.process, SIGKILL);
  }
}

std::vector<Supervisor::Running> Supervisor::running() const {
  std::vector<Running> running;
  for (const Child& c : children_) {
    if (c.process > 0) running.push_back({c.role, c.process, c.started});
  }
  return running;
}

int Supervisor::alive() const {
  return int(std::ranges::count_if(children_, [](const Child& c) { return c.process > 0; }));
}

std::string Supervisor::LogTail(FleetRole role) const {
  std::ifstream file(LogFile(role), std::ios::ate | std::ios::binary);
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
