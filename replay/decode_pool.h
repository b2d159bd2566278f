#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace troop {

// Threads that help their owner with one call at a time. Owner: one thread.
// Invariant: outside Run no worker touches anything of the owner's.
class DecodePool {
 public:
  explicit DecodePool(int threads);  // REQUIRES: threads >= 0
  ~DecodePool();
  DecodePool(const DecodePool&) = delete;
  DecodePool& operator=(const DecodePool&) = delete;

  int threads() const { return int(threads_.size()); }
  // Runs work(0) here and work(1 … threads()) on those workers that wake before it has returned:
  // `work` takes what is left to do until nothing is. Returns when all of them have.
  void Run(const std::function<void(int worker)>& work);

 private:
  void Loop(int worker);

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  const std::function<void(int)>* work_ = nullptr;  // while there may be something left
  std::uint64_t call_ = 0;
  int busy_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace troop
