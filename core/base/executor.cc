// Implements InlineExecutor and ThreadExecutor.
#include "core/base/executor.h"

namespace troop {

// Runs the job before it returns, so that tests and serial runs are deterministic.
Result<Executor::Job> InlineExecutor::Submit(std::string_view, std::function<void()> work) {
  work();
  done_.insert(next_);
  return next_++;
}

bool InlineExecutor::TakeDone(Job job) { return done_.erase(job) > 0; }

ThreadExecutor::ThreadExecutor(int threads, std::function<void()> wake, std::size_t queue_max)
    : wake_(std::move(wake)), queue_max_(queue_max) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

// Finishes queued jobs: they may be writes that the owner relies on.
ThreadExecutor::~ThreadExecutor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Errors: kResourceExhausted if queue_max_ jobs wait. Never blocks on a running job.
Result<Executor::Job> ThreadExecutor::Submit(std::string_view name, std::function<void()> work) {
  Job job;
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= queue_max_) {
      return ResourceExhausted("{} jobs wait already (limit {}); job {} was refused", queue_.size(),
                               queue_max_, name);
    }
    job = next_++;
    queue_.push_back({job, std::string(name), std::move(work)});
  }
  ready_.notify_one();
  return job;
}

// True once for each finished job.
bool ThreadExecutor::TakeDone(Job job) {
  std::lock_guard lock(mutex_);
  return done_.erase(job) > 0;
}

void ThreadExecutor::Run() {
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      // Queued jobs are finished even after stopping_ is set.
      if (queue_.empty()) return;
      entry = std::move(queue_.front());
      queue_.pop_front();
    }
    entry.work();
    entry.work = nullptr;  // resources of the job are released before it counts as done
    {
      std::lock_guard lock(mutex_);
      done_.insert(entry.job);
    }
    // Outside the lock: the owner that it wakes calls TakeDone at once.
    if (wake_) wake_();
  }
}

}  // namespace troop
