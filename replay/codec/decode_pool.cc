// DecodePool: a thread pool for one owner and one call at a time.
#include "replay/codec/decode_pool.h"

#include "core/base/check.h"

namespace troop {

DecodePool::DecodePool(int threads) {
  TROOP_CHECK(threads >= 0, "{} threads", threads);
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Loop(i + 1); });
}

// REQUIRES: no Run is active.
DecodePool::~DecodePool() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DecodePool::Run(const std::function<void(int)>& work) {
  if (threads_.empty()) return work(0);
  {
    const std::scoped_lock lock(mutex_);
    work_ = &work;
    ++call_;
  }
  wake_.notify_all();
  // The owner takes part: small calls finish before any worker wakes.
  work(0);
  std::unique_lock lock(mutex_);
  work_ = nullptr;  // a worker that wakes later finds no work and is not waited for
  idle_.wait(lock, [this] { return busy_ == 0; });
}

// Joins each call at most once (`seen`), unless Run has ended before.
void DecodePool::Loop(int worker) {
  std::unique_lock lock(mutex_);
  std::uint64_t seen = 0;
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || (work_ != nullptr && call_ != seen); });
    if (stopping_) return;
    // Joining under the lock keeps *work_ alive: Run waits until busy_ is 0.
    seen = call_;
    ++busy_;
    const auto& work = *work_;
    lock.unlock();
    work(worker);
    lock.lock();
    if (--busy_ == 0) idle_.notify_one();
  }
}

}  // namespace troop
