#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/base/node.h"

namespace troop {

// Runs each job inside Submit; for serial mode and tests.
class InlineExecutor final : public Executor {
 public:
  Result<Job> Submit(std::string_view name, std::function<void()> work) override;
  bool TakeDone(Job job) override;

 private:
  Job next_ = 1;
  std::set<Job> done_;
};

// A thread pool with a bounded queue. Submit and TakeDone: one owner thread. `wake` is called on a
// pool thread after each job and must be thread safe (Network::Wake).
class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor(int threads, std::function<void()> wake, std::size_t queue_max = 64);
  ~ThreadExecutor() override;  // finishes all submitted jobs
  Result<Job> Submit(std::string_view name, std::function<void()> work) override;
  bool TakeDone(Job job) override;

 private:
  // A queued job.
  struct Entry {
    Job job;
    std::string name;
    std::function<void()> work;
  };
  void Run();

  const std::function<void()> wake_;
  const std::size_t queue_max_;
  std::mutex mutex_;
  std::condition_variable ready_;
  // The following four members are guarded by mutex_.
  std::deque<Entry> queue_;
  std::set<Job> done_;
  bool stopping_ = false;
  Job next_ = 1;
  std::vector<std::thread> threads_;
};

}  // namespace troop
