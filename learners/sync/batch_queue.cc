// Implements the queue of jobs whose batches are computed one at a time.
#include "learners/sync/batch_queue.h"

namespace troop {

// The weights are checked and copied after the last batch of a job.
void BatchQueue::FinishBatch() {
  UpdateJob& job = *jobs_.front();
  if (++next_ == job.batches.size()) FinishJob(*algorithm_, &job);
}

std::unique_ptr<UpdateJob> BatchQueue::Collect() {
  if (jobs_.empty() || HasBatch()) return nullptr;
  std::unique_ptr<UpdateJob> job = std::move(jobs_.front());
  jobs_.pop_front();
  next_ = 0;
  return job;
}

// A batch has priorities from the begin of its computation.
void BatchQueue::Abandon() {
  if (jobs_.empty()) return;
  for (const auto& job : jobs_) {
    job->batches.resize(job->priority.size());
    FinishJob(*algorithm_, job.get());
  }
  next_ = jobs_.front()->batches.size();
}

}  // namespace troop
