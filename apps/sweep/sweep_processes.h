#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "core/storage/storage.h"

namespace troop {

// The running `troop train` processes of a sweep: starts, collects and stops them, and prints their
// progress. One owner thread, which must live as long as the process (StartChild).
class SweepProcesses {
 public:
  // A process that has ended, and the index of its run in the plan.
  struct Ended {
    std::size_t run = 0;
    int wait_status = 0;
  };
  // path: the sweep folder, whose logs/NAME.log gets the output of a run.
  explicit SweepProcesses(std::string path) : path_(std::move(path)) {}

  // Starts this program with `words` ("train", ...) for run `run`, whose folder is `name`. Errors:
  // kResourceExhausted.
  Status Start(std::size_t run, const std::string& name, std::vector<std::string> words);
  // Collects the processes that have ended. Does not block.
  std::vector<Ended> Reap();
  // Passes on signals: the first of `count` drains the runs, a second one kills them. True if it
  // was the first.
  bool HandleSignals(int count);
  // Prints the last log line of each running process: after 2 s, 4 s, 8 s and 16 s, then every 30
  // s. True if it did.
  bool ShowProgress(const std::function<std::string(std::size_t run)>& title);

  std::size_t running() const { return children_.size(); }
  bool signalled() const { return signalled_ > 0; }
  double elapsed_s() const { return ToSeconds(clock_.Now() - begun_); }
  std::string LogOf(const std::string& name) const { return path_ + "/logs/" + name + ".log"; }

  // Blocks for the interval at which signals and ended processes are polled.
  static void WaitBriefly();
  // Keeps the processes of several concurrent runs from using all cores each.
  static void LimitThreads(int jobs);

 private:
  struct Child {
    std::size_t run = 0;
    pid_t process = 0;
    std::string name;
  };
  const std::string path_;
  std::vector<Child> children_;
  const SystemClock clock_;
  const Time begun_ = clock_.Now();
  Time show_ = begun_ + Seconds(2);  // time of the next progress output
  int signalled_ = 0;                // signals passed on to the children
};

// Removes what a run of the sweep left if it was killed before its config was written; a new run
// would reject such a folder, as its files could be the user's. Only a folder that the sweep gave
// to a run before (configs/NAME.toml exists), and that no process holds. Errors: those of the
// storage.
Status RemoveUnbegunRun(Storage* sweep, const std::string& name);

}  // namespace troop
