#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace troop {

// Threads that help their owner with one call at a time. Owner: one thread. Invariant: outside Run
// no worker accesses data of the owner.
class DecodePool {
 public:
  explicit DecodePool(int threads);  // REQUIRES: threads >= 0
  ~DecodePool();
  DecodePool(const DecodePool&) = delete;
  DecodePool& operator=(const DecodePool&) = delete;

  int threads() const { return int(threads_.size()); }
  // Runs work(0) on this thread and work(1 … threads()) on the workers that wake before it has
  // returned. `work` must claim the remaining tasks itself until none is left. Returns when all
  // calls have returned.
  void Run(const std::function<void(int worker)>& work);

 private:
  void Loop(int worker);

  std::mutex mutex_;  // protects work_, call_, busy_ and stopping_
  std::condition_variable wake_, idle_;
  const std::function<void(int)>* work_ = nullptr;  // non-null while tasks may be left
  std::uint64_t call_ = 0;  // number of the current Run; a worker joins each once
  int busy_ = 0;            // workers inside work_
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace troop
