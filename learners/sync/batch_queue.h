#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "learners/sync/updater.h"

namespace troop {

// FIFO of the jobs of an updater that computes their batches one at a time. Invariant: only the
// first job has batches that are done and batches that are not. Owner: the node's thread.
class BatchQueue {
 public:
  static constexpr std::size_t kJobsMax = 2;  // a second job is ready when one ends
  static constexpr std::size_t kBatchesMax = 16;

  // `algorithm`: holds the weights that FinishJob checks and copies; must outlive the queue.
  explicit BatchQueue(Algorithm* algorithm) : algorithm_(algorithm) {}

  bool HasRoom() const { return jobs_.size() < kJobsMax; }
  // REQUIRES: HasRoom.
  void Add(std::unique_ptr<UpdateJob> job) { jobs_.push_back(std::move(job)); }
  bool empty() const { return jobs_.empty(); }
  // True if the first job has a batch that is not done.
  bool HasBatch() const { return !jobs_.empty() && next_ < jobs_.front()->batches.size(); }
  // The first job, and the index of its next batch. REQUIRES: !empty().
  UpdateJob& job() { return *jobs_.front(); }
  std::size_t batch() const { return next_; }
  // Progress of the run before the next batch (UpdateJob::ProgressAt). REQUIRES: !empty().
  double progress() const { return jobs_.front()->ProgressAt(next_); }

  // Counts the next batch as done, and finishes the job after its last one. REQUIRES: HasBatch.
  void FinishBatch();
  // Takes the first job if all its batches are done; otherwise nullptr.
  std::unique_ptr<UpdateJob> Collect();
  // Completes all jobs with the batches that are computed, and drops the others.
  // REQUIRES: no job of the executor uses a batch.
  void Abandon();

 private:
  Algorithm* const algorithm_;
  std::deque<std::unique_ptr<UpdateJob>> jobs_;  // oldest first
  std::size_t next_ = 0;                         // batch of the first job
};

}  // namespace troop
