#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "core/storage/json.h"

namespace troop {

// The runs of a dashboard: the given ones, and the others in their log folders. A name from a
// request is only compared with the names found here; it never becomes part of a path. Owner: one
// thread at a time.
class RunIndex {
 public:
  static constexpr std::size_t kRunsMax = 1000;  // the given ones, and the newest of the others

  // `paths`: run folders, or folders of runs. Errors: kNotFound: neither.
  static Result<RunIndex> Make(const std::vector<std::string>& paths);
  // The run at `path`, which may not have started, and the runs next to it.
  static RunIndex OfRun(const std::string& path);
  // Finds new runs and drops removed ones.
  void Refresh();
  // The path of a run; empty if the name is unknown. Names are unique: a second folder of the same
  // name is called "name~2".
  std::string Find(std::string_view name) const;
  // Names of all runs: the given ones, then the others, newest first.
  const std::vector<std::string>& names() const { return names_; }
  // One JSON object of a run for lists: name, environment, state, steps, score and so on. Files are
  // read again only if they changed. REQUIRES: `name` is one of names().
  JsonObject Summary(const std::string& name);

 private:
  struct Known {  // cached data of one run, with the times of its files
    std::int64_t config_changed = -1, result_changed = -1, metrics_changed = -1;
    std::string env, algorithm, mode;
    JsonObject result, progress;
    double seed = 0, steps_total = 0;
    bool supervised = false;
  };
  std::vector<std::string> named_;    // absolute paths
  std::vector<std::string> folders_;  // folders of runs
  std::vector<std::string> names_;
  std::map<std::string, std::string, std::less<>> paths_;
  std::map<std::string, Known> known_;  // by path
};

// State of a run: "running", "stopped" (SIGSTOP), "ended", "interrupted", "failed" or "killed".
std::string StateOfRun(const std::string& path);

}  // namespace troop
