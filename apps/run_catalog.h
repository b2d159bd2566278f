#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "core/time.h"

namespace troop {

// The runs that somebody wants to look at: those named, and the others of their log folders. What a
// stranger asks for is compared with the names found here, and never becomes part of a path.
// Owner: one thread at a time.
class RunCatalog {
 public:
  static constexpr std::size_t kRunsMax = 1000;  // those named, and the newest of the others

  // `paths`: folders of runs, or folders that hold runs. Errors: kNotFound: neither.
  static Result<RunCatalog> Make(const std::vector<std::string>& paths);
  // Of a run that may not have begun, and its neighbours.
  static RunCatalog OfRun(const std::string& path);
  // Looks for new runs, and for those that went.
  void Refresh();
  // The path of a run; empty: there is none of this name. Names are unique: of two folders of the
  // same name the second is called "name~2".
  std::string Find(std::string_view name) const;
  // Newest first; those that were named before all others.
  const std::vector<std::string>& names() const { return names_; }
  // One JSON object for a list of runs: name, environment, state, steps, score ...; what does not
  // change is read once.
  std::string Summary(const std::string& name);

 private:
  struct Known {  // of one run, as of the files' times
    std::int64_t config_changed = -1, result_changed = -1, metrics_changed = -1;
    std::string env, algorithm, mode, result_json = "{}", progress_json = "{}";
    double seed = 0, steps_total = 0;
    bool supervised = false;
  };
  std::vector<std::string> named_;    // absolute paths
  std::vector<std::string> folders_;  // that hold runs
  std::vector<std::string> names_;
  std::map<std::string, std::string, std::less<>> paths_;
  std::map<std::string, Known> known_;  // by path
};

// "running", "stopped" (by a signal), "ended", "interrupted", "failed" or "killed".
std::string StateOfRun(const std::string& path);

}  // namespace troop
