#pragma once

#include <memory>
#include <string_view>

#include "core/base/node.h"
#include "core/base/time.h"
#include "core/storage/storage.h"
#include "replay/persistence/journal_job.h"

namespace troop {

// A sequence of a journal's jobs, of which at most one runs at a time. The jobs of a lane share one
// open file. Owner: one thread. No call blocks, unless the executor runs jobs within Submit.
class JournalLane {
 public:
  // `storage` and `executor` outlive the lane's jobs. The lock is shared with the jobs: the last
  // owner releases it.
  JournalLane(Storage* storage, Executor* executor, std::shared_ptr<StorageLock> lock);

  bool idle() const { return ticket_ == 0; }
  // The job that runs. REQUIRES: !idle().
  const JournalJob& running() const { return *job_; }
  // Submits a job; false if the executor is full, which retry_at() then allows for. REQUIRES:
  // idle().
  bool Start(std::string_view name, std::shared_ptr<JournalJob> job, Time now);
  // Returns the job if it has ended since it was started; else nullptr.
  std::shared_ptr<JournalJob> TakeDone();

  // Earliest time of the next job after a failure. The owner of the lane compares it with the time.
  Time retry_at() const { return retry_at_; }
  void RetryAt(Time at) { retry_at_ = at; }

 private:
  Storage* storage_;
  Executor* executor_;
  std::shared_ptr<StorageLock> lock_;
  std::shared_ptr<JournalFile> file_;
  Executor::Job ticket_ = 0;  // 0: idle
  std::shared_ptr<JournalJob> job_;
  Time retry_at_{};
};

}  // namespace troop
