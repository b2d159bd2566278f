#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/sweep/successive_halving.h"
#include "apps/sweep/sweep_summary.h"
#include "core/storage/json.h"
#include "core/storage/storage.h"

namespace troop {

// The file halving.jsonl of a sweep folder, from which a sweep with successive halving continues
// with the same decisions. One JSON object per line, appended and synced before it takes effect:
//   {"resource": "steps", "min_resource": …, …}            the settings, first
//   {"begin": "trial-3-seed-1", "trial": 3, "rung": 0}      a run has started
//   {"end": "trial-3-seed-1", "trial": 3, "rung": 0, "status": "ok", "final_return_mean": …}
//   {"end": "trial-4-seed-1", "trial": 4, "rung": 0, "status": "failed", "reason": "…"}
// A last line without a newline was cut off by a crash; it is ignored and removed.
class HalvingJournal {
 public:
  // The state that the lines lead to.
  struct History {
    SuccessiveHalving halving;
    SweepScores scores;            // per trial: that of its last completed rung
    std::size_t intact_bytes = 0;  // length of the complete lines
    // Records the end of a job in both; nullopt: it failed.
    void End(const SuccessiveHalving::Job& job, std::optional<SweepScore> score);
  };
  // Reads the file and repeats its decisions. Writes nothing; a missing file is an empty history.
  // names: folders of the trials' runs. Errors: kAlreadyExists: written with other settings or
  // other trials; kDataLoss: damaged, or a line is not the decision that follows from those before.
  static Result<History> Read(Storage* folder, const HalvingSettings& settings,
                              std::span<const std::string> names);

  // Opens the file for appending after Read; writes the settings into a new one. Errors: those of
  // the storage.
  static Result<HalvingJournal> Open(Storage* folder, const HalvingSettings& settings,
                                     std::vector<std::string> names, std::size_t intact_bytes);
  // Append one line durably. Errors: those of the storage.
  Status Begin(const SuccessiveHalving::Job& job);
  Status End(const SuccessiveHalving::Job& job, const SweepScore& score);
  Status EndFailed(const SuccessiveHalving::Job& job, const std::string& reason);

  static constexpr char kFile[] = "halving.jsonl";

 private:
  HalvingJournal(std::unique_ptr<AppendFile> file, std::vector<std::string> names)
      : file_(std::move(file)), names_(std::move(names)) {}
  Status Append(const std::string& line);
  JsonObject LineOf(const char* event, const SuccessiveHalving::Job& job) const;

  std::unique_ptr<AppendFile> file_;
  std::vector<std::string> names_;
};

}  // namespace troop
