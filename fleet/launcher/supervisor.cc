// Starts and restarts role processes, with exponential backoff and a limit of failures in a row.
#include "fleet/launcher/supervisor.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>

#include "core/base/log.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/subprocess.h"
#include "net/security/keys.h"

namespace troop {
namespace {

// Starts per Tick: bounds the time in fork, during which no message is handled, to tens of ms.
constexpr int kStartsMax = 100;

// True for exit codes that a restart with the same command line, config and files would repeat.
bool IsPermanent(int code) {
  return code == kExitUsage || code == kExitDamaged || code == kExitGaveUp;
}

}  // namespace

// Longer silence is tolerated in a large fleet: in proportion from 250 actors on, at most fourfold.
double ActorsDeadAfter(const Config& config, std::int64_t actors) {
  return config.fleet.heartbeat_timeout_s * std::clamp(double(actors) / 250, 1.0, 4.0);
}

Supervisor::Supervisor(Options options, std::vector<FleetRole> roles)
    : options_(std::move(options)) {
  for (const FleetRole& role : roles) children_.push_back({.role = role});
}

// A slot that exists already keeps its history of failures.
void Supervisor::Add(FleetRole role) {
  if (std::ranges::find(children_, role, &Child::role) == children_.end()) {
    children_.push_back({.role = role});
  }
}

// Leaves no child and no zombie.
Supervisor::~Supervisor() {
  for (Child& child : children_) {
    if (child.process <= 0) continue;
    kill(child.process, SIGKILL);
    waitpid(child.process, nullptr, 0);  // a killed child is reaped at once
  }
}

std::string Supervisor::NameOf(FleetRole role) const {
  return options_.log_name ? options_.log_name(role) : PeerName(role.role, role.index);
}

std::string Supervisor::LogFile(FleetRole role) const {
  return fmt::format("{}/{}.log", options_.log_folder, NameOf(role));
}

// Builds the command line of `troop role` and forks it.
Status Supervisor::Start(Child* child, Time now) {
  // Actors tolerate longer silence in a large fleet (ActorsDeadAfter).
  const auto actors =
      std::ranges::count_if(children_, [](const Child& c) { return c.role.role == Role::kActor; });
  const double dead_after =
      child->role.role == Role::kActor
          ? ActorsDeadAfter(options_.config,
                            std::max<std::int64_t>(actors, options_.config.fleet.actors))
          : options_.config.fleet.heartbeat_timeout_s;
  std::vector<std::string> words{"troop",
                                 "role",
                                 std::string(RoleName(child->role.role)),
                                 "--index",
                                 std::to_string(child->role.index),
                                 "--coordinator",
                                 options_.coordinator,
                                 "--heartbeat-timeout",
                                 fmt::format("{}", dead_after)};
  // External: the coordinator chooses the index, and the role binds at this machine's address.
  if (!options_.index_is_given) {
    words.insert(words.end(), {"--auto-index", "--advertise-host", options_.advertise_host});
  }
  if (options_.rejoin) words.push_back("--rejoin");
  const auto& security = options_.config.security;
  // The given key file, else the one of the role in security.keys.
  const std::string key = options_.key_file.empty() && !security.keys.empty()
                              ? KeyFileOf(security.keys, child->role.role)
                              : options_.key_file;
  if (!key.empty()) words.insert(words.end(), {"--key", key});
  if (security.insecure) words.push_back("--insecure");
  std::string program = options_.executable;
  if (options_.wrap) options_.wrap(child->role, &program, &words);
  child->started = now;  // also if it fails, so that the failure counts as one at the start
  const std::string log = LogFile(child->role);
  TROOP_ASSIGN_OR_RETURN(child->process, options_.spawn
                                             ? options_.spawn(program, std::move(words), log)
                                             : StartChild(program, std::move(words), log, SIGKILL));
  return Status::Ok();
}

// The process limit may be reached for a moment only, so the role is retried like one that exited.
Supervisor::Exit Supervisor::HandleFailedStart(Child* child, const Status& why, Time now) {
  Exit exit{.role = child->role, .reason = std::string(why.message()), .failed = true};
  CountFailure(child, now, false);
  ScheduleRestart(child, now, exit.reason, &exit);
  return exit;
}

// Reaps each child without blocking (WNOHANG), then starts due roles, at most kStartsMax.
std::vector<Supervisor::Exit> Supervisor::Tick(Time now, const Needed& needed) {
  std::vector<Exit> exits;
  int starts = 0;
  for (Child& child : children_) {
    if (child.process > 0) {
      int wait_status = 0;
      if (waitpid(child.process, &wait_status, WNOHANG) != child.process) continue;
      exits.push_back(HandleExit(&child, wait_status, now, needed(child.role)));
    }
    const bool due = status_.ok() && child.process == 0 && !child.lost && now >= child.start_at;
    if (due && starts < kStartsMax && needed(child.role)) {
      const Status started = Start(&child, now);
      if (!started.ok()) exits.push_back(HandleFailedStart(&child, started, now));
      ++starts;
    }
  }
  return exits;
}

// Classifies an exit: permanent failures give up, needed roles are restarted, others are logged.
Supervisor::Exit Supervisor::HandleExit(Child* child, int wait_status, Time now, bool needed) {
  Exit exit{.role = child->role,
            .process = std::exchange(child->process, 0),
            .reason = DescribeExit(wait_status),
            .orderly = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0,
            .failed = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) != 0,
            .code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1};
  CountFailure(child, now, !child->kill_reason.empty());
  if (!needed && exit.orderly) child->failures = 0;  // released; the slot may be needed again
  if (!child->kill_reason.empty()) exit.reason += ": " + std::exchange(child->kill_reason, {});
  if (needed && IsPermanent(exit.code)) {
    GiveUp(child, exit.code, exit.reason);
  } else if (needed) {
    const std::string reason = exit.reason + (exit.orderly ? ", before the end of the run" : "");
    ScheduleRestart(child, now, reason, &exit);
  } else if (!exit.orderly) {
    LogWarning("{} ended ({}); last log line: {}", NameOf(child->role), exit.reason,
               LogTail(child->role));
  }
  return exit;
}

// Handles a permanent failure. The run fails, unless the slot is optional and another optional one
// is left.
void Supervisor::GiveUp(Child* child, int code, const std::string& reason) {
  // kDataLoss gives the run the exit code of a damaged file too.
  const Status why = MakeStatus(code == kExitDamaged ? Code::kDataLoss : Code::kAborted,
                                "{} {} ({}); a restart cannot fix this; last log line: {}; see {}",
                                NameOf(child->role),
                                code == kExitUsage     ? "rejected its command line or config"
                                : code == kExitDamaged ? "found a damaged file"
                                                       : "gave up",
                                reason, LogTail(child->role), LogFile(child->role));
  LogError("{}", why.message());
  const auto spare = [&](const Child& c) { return options_.spare && options_.spare(c.role); };
  child->lost = spare(*child);
  if (child->lost &&
      std::ranges::any_of(children_, [&](const Child& c) { return spare(c) && !c.lost; })) {
    return;
  }
  status_ = why;
  permanent_code_ = code;
}

// Counts consecutive failures, because backoff spreads them over any time window. A process that
// ran for restart_window_s resets the count; time spent hanging does not count as running.
void Supervisor::CountFailure(Child* child, Time now, bool hung) {
  const auto& fleet = options_.config.fleet;
  const double worked_s = ToSeconds(now - child->started) - (hung ? fleet.stall_timeout_s : 0);
  if (worked_s >= fleet.restart_window_s) child->failures = 0;
  ++child->failures;
}

// Waits backoff_initial_s * 2^(failures - 1), at most backoff_max_s. Too many failures end the run,
// except for optional slots.
void Supervisor::ScheduleRestart(Child* child, Time now, const std::string& reason, Exit* exit) {
  const std::string name = NameOf(child->role);
  const std::string last = LogTail(child->role);
  const auto& fleet = options_.config.fleet;
  const bool spare = options_.spare && options_.spare(child->role);
  if (child->failures > fleet.restarts_max && !spare) {
    status_ = Aborted(
        "{} failed {} times in a row, each within {:g} s of its start (fleet.restarts_max = {}, "
        "fleet.restart_window_s), last: {}; last log line: {}; see {}",
        name, child->failures, fleet.restart_window_s, fleet.restarts_max, reason, last,
        LogFile(child->role));
    LogError("{}", status_.message());
    return;
  }
  constexpr double kWaitMax = 1e9;  // seconds; keeps now + wait within the range of Time
  const double wait =
      std::min({fleet.backoff_max_s, kWaitMax,
                fleet.backoff_initial_s * std::pow(2, double(child->failures - 1))});
  child->start_at = now + Seconds(wait);
  ++restarts_;
  exit->failures = child->failures;
  exit->restart = fmt::format("restart {} of at most {} in {:.1f} s", child->failures,
                              fleet.restarts_max, wait);
  LogWarning("{} {} ({}); last log line: {}; {}", name,
             exit->process == 0 ? "could not be started" : "ended", reason, last, exit->restart);
}

// Errors are ignored: a child may have ended, and the next Tick reaps it.
void Supervisor::Signal(int number) {
  for (const Child& child : children_) {
    if (child.process > 0) kill(child.process, number);
  }
}

// The process id guards against killing a restarted process that has made progress since.
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

std::string Supervisor::LogTail(FleetRole role) const { return LastLine(LogFile(role)); }

// Parses "<role>: <phase> … s so far" out of the last log line (core/base/phase_progress.h).
std::string Supervisor::PhaseText() const {
  for (const Child& child : children_) {
    if (child.process <= 0 || child.role.role == Role::kActor) continue;
    const std::string tail = LogTail(child.role), name = NameOf(child.role);
    const std::size_t at = tail.find(" " + name + ": ");
    if (at == tail.npos || tail.find(" s so far", at) == tail.npos) continue;
    return fmt::format("; {} is {}", name, tail.substr(at + name.size() + 3));
  }
  return {};
}

}  // namespace troop
