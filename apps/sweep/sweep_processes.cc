// Child processes of a sweep.
#include "apps/sweep/sweep_processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "fleet/launcher/subprocess.h"

namespace troop {
namespace {

constexpr int kLookEveryMs = 20;  // a run lasts seconds at least
constexpr Duration kShowEveryMax = Seconds(30);

}  // namespace

// If the sweep dies, SIGTERM drains the run, which can then be resumed.
Status SweepProcesses::Start(std::size_t run, const std::string& name,
                             std::vector<std::string> words) {
  std::error_code error;  // StartChild reports a folder that is missing
  std::filesystem::create_directories(path_ + "/logs", error);
  words.insert(words.begin(), "troop");
  TROOP_ASSIGN_OR_RETURN(const pid_t process,
                         StartChild("/proc/self/exe", std::move(words), LogOf(name), SIGTERM));
  children_.push_back({run, process, name});
  return Status::Ok();
}

// Waits for each known process, never for any child: a library may have children too.
std::vector<SweepProcesses::Ended> SweepProcesses::Reap() {
  std::vector<Ended> ended;
  std::erase_if(children_, [&ended](const Child& child) {
    int wait_status = 0;
    if (waitpid(child.process, &wait_status, WNOHANG) != child.process) return false;
    ended.push_back({child.run, wait_status});
    return true;
  });
  return ended;
}

// `count` includes the signals of earlier calls.
bool SweepProcesses::HandleSignals(int count) {
  if (count == 0 || signalled_ >= 2 || count == signalled_) return false;
  const bool first = signalled_ == 0;
  if (first) {
    fmt::print("stopping {} runs after a checkpoint (signal again to kill them)\n",
               children_.size());
    std::fflush(stdout);
  }
  signalled_ = count;
  for (const Child& child : children_) kill(child.process, count == 1 ? SIGTERM : SIGKILL);
  return first;
}

// The interval doubles, since it is the time since the start, up to its limit.
bool SweepProcesses::ShowProgress(const std::function<std::string(std::size_t run)>& title) {
  const Time now = clock_.Now();
  if (now < show_) return false;
  show_ = now + std::min(now - begun_, kShowEveryMax);
  for (const Child& child : children_) {
    fmt::print("  {}: {}\n", title(child.run), LastLine(LogOf(child.name)));
  }
  std::fflush(stdout);
  return true;
}

void SweepProcesses::WaitBriefly() { poll(nullptr, 0, kLookEveryMs); }

// The roles of a fleet have the same limit; results do not depend on it. Values of the user are
// kept.
void SweepProcesses::LimitThreads(int jobs) {
  if (jobs < 2) return;
  setenv("OMP_NUM_THREADS", "1", 0);
  setenv("OMP_WAIT_POLICY", "passive", 0);
}

Status RemoveUnbegunRun(Storage* sweep, const std::string& name) {
  if (!sweep->Exists("configs/" + name + ".toml") || sweep->Exists(name + "/config.toml")) {
    return Status::Ok();
  }
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> files, sweep->List(name));
  if (files.empty()) return Status::Ok();
  // A live process reports itself when the run starts.
  const auto lock = sweep->Lock(name + "/lock", fmt::format("process {}", getpid()));
  return lock.ok() ? sweep->Remove(name) : Status::Ok();
}

}  // namespace troop
