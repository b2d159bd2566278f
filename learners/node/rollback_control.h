#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/node.h"
#include "learners/algorithm.h"
#include "learners/rl/quarantine.h"
#include "learners/rollback.h"
#include "learners/sync/updater.h"

namespace troop {

// Reaction to non-finite values: counts good and skipped updates, excludes items that are at fault
// (Quarantine), and resets the algorithm to the last good version (RollbackRule) in a job of the
// executor. Owner: the node's thread; the job uses the algorithm.
class RollbackControl {
 public:
  struct Options {
    const TrainingConfig* config = nullptr;
    const EnvSpec* env = nullptr;
    Executor* executor = nullptr;
    Storage* run = nullptr;  // the run folder
    Algorithm* algorithm = nullptr;
    bool shards_hold_weights = false;  // parameter shards: a rollback here has no effect
  };
  explicit RollbackControl(const Options& options) : options_(options) {}

  // Writes the priorities of a job's updates back, and counts them. Returns the reason for a
  // rollback; ok: none is needed, or one is in progress.
  Status Review(const UpdateJob& job, ReplaySampler* sampler);
  // Checks that a rollback because of `why` can help, and counts it. Errors: the one that ends the
  // learner: kUnavailable: the device or an external program has failed; kCancelled: too many
  // rollbacks, or no effect.
  Status Permit(const Status& why);
  // Submits the job. REQUIRES: Permit was ok; not busy().
  void Start(const Status& why);
  // True from Start until Poll returns the result.
  bool busy() const { return job_ != nullptr; }
  // A completed rollback.
  struct Done {
    std::uint64_t updates = 0;
    Buffer value;             // the weights
    std::string description;  // for the log
  };
  // The result, once; nullopt: no job, or still running. Errors: those of RollBack.
  Result<std::optional<Done>> Poll();

  std::uint64_t skipped() const { return skipped_; }  // updates, since construction
  std::uint64_t quarantined() const { return quarantine_.items(); }

 private:
  struct Job {
    Executor::Job id = 0;
    Status why;
    Result<std::string> to = std::string();  // human-readable
    std::uint64_t updates = 0;
    Buffer value;
  };

  const Options options_;
  RollbackRule rule_;
  Quarantine quarantine_;
  std::uint64_t skipped_ = 0;
  std::unique_ptr<Job> job_;
};

}  // namespace troop
