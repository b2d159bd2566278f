#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/node.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "paramserver/replication/shard_snapshots.h"
#include "paramserver/service/shard_server.h"

namespace troop {

// Saves the state of a served shard in jobs, every checkpoint.every_s and once at the end of a run.
// At most one job runs. Non-finite weights are not saved, so that the last good snapshot stays. A
// failed save is retried at the next interval; a failed final save is an error of the process.
// Owner: the node's thread; it must keep the saver until the job ends. Cost: O(n) per snapshot.
class ShardSaver {
 public:
  struct Options {
    Executor* executor = nullptr;  // must outlive the saver
    std::int32_t shard = 0;        // for messages
    double every_s = 0;            // checkpoint.every_s; 0: only the final save
  };
  struct Target {
    ShardSnapshots* snapshots = nullptr;  // must outlive the job
    std::uint64_t since = 0;              // ShardTerm::since of the server's term
    bool final = false;                   // the last save of the run
  };
  explicit ShardSaver(const Options& options) : options_(options) {}

  // True if an interval has ended. The first call begins the first interval.
  bool IsDue(Time now);
  // Begins the next interval.
  void BeginInterval(Time now);
  // Time of the next periodic save; kForever: none.
  Time next_save() const { return next_save_.value_or(kForever); }
  // Starts a job, unless one is running, or the server's version is saved already.
  // REQUIRES: server->PauseUpdates() has returned true.
  void Save(ShardServer* server, const Target& target);
  // Takes the result of a finished job. Errors: those of a final save.
  Status Collect();
  // Forgets the saved version, also that of a running job: another server's versions are not
  // comparable.
  void BeginServer() {
    saved_version_ = 0;
    if (job_) job_->version = 0;
  }

  bool running() const { return job_ != nullptr; }
  bool final_started() const { return final_started_; }
  std::int64_t saves() const { return saves_; }
  std::int64_t failures() const { return failures_; }

 private:
  struct Job {
    Executor::Job id = 0;
    Status status;
    std::uint64_t version = 0;
    bool final = false;
  };

  const Options options_;
  std::unique_ptr<Job> job_;  // its address is known to the executor's thread
  std::optional<Time> next_save_;
  std::uint64_t saved_version_ = 0;
  bool final_started_ = false;
  std::int64_t saves_ = 0, failures_ = 0;
};

}  // namespace troop
