#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "core/base/check.h"
#include "core/base/node.h"
#include "core/base/time.h"
#include "learners/sync/updater.h"

namespace troop {

// FIFO of jobs that an executor runs one after the other; results are collected in that order.
// Owner: the node's thread.
class UpdateQueue {
 public:
  explicit UpdateQueue(Executor* executor) : executor_(executor) {}

  // `work` owns access to `job` until it is collected. REQUIRES: the executor has room for another
  // job.
  void Submit(std::function<void()> work, std::unique_ptr<UpdateJob> job) {
    auto timed = [work = std::move(work), job = job.get()] {
      const Time start = SystemClock().Now();
      work();
      job->busy_s = ToSeconds(SystemClock().Now() - start);
    };
    Result<Executor::Job> id = executor_->Submit("update", std::move(timed));
    TROOP_CHECK(id.ok(), "{}", id.status().ToString());
    jobs_.push_back({*id, std::move(job)});
  }
  // The oldest job, if it is done; otherwise nullptr.
  std::unique_ptr<UpdateJob> Collect() {
    if (jobs_.empty() || !executor_->TakeDone(jobs_.front().id)) return nullptr;
    std::unique_ptr<UpdateJob> job = std::move(jobs_.front().job);
    jobs_.pop_front();
    return job;
  }
  std::size_t size() const { return jobs_.size(); }

 private:
  struct Submitted {
    Executor::Job id = 0;
    std::unique_ptr<UpdateJob> job;
  };
  Executor* const executor_;
  std::deque<Submitted> jobs_;  // oldest first
};

}  // namespace troop
