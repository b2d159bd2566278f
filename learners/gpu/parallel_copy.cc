// Implements the multi-threaded copy of host memory.

#include "learners/gpu/parallel_copy.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <latch>
#include <thread>
#include <vector>

namespace troop {
namespace {

// Small enough that threads finish at about the same time, large enough to be worth their overhead.
constexpr std::size_t kSlice = std::size_t(1) << 20;

}  // namespace

ParallelCopy::ParallelCopy(int helpers) : helpers_(std::max(0, helpers)) {
  if (helpers_ > 0) executor_ = std::make_unique<ThreadExecutor>(helpers_, [] {});
}

int ParallelCopy::DefaultHelpers() {
  return std::min(7, int(std::thread::hardware_concurrency()) / 2 - 1);
}

// Threads take slices from a shared counter, so a slow thread delays the end by one slice.
void ParallelCopy::Copy(std::span<const Piece> pieces) {
  std::vector<Piece> slices;
  for (const Piece& piece : pieces) {
    for (std::size_t at = 0; at < piece.bytes; at += kSlice) {
      slices.push_back({static_cast<std::byte*>(piece.to) + at,
                        static_cast<const std::byte*>(piece.from) + at,
                        std::min(kSlice, piece.bytes - at)});
    }
  }
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < slices.size(); i = next.fetch_add(1))
      std::memcpy(slices[i].to, slices[i].from, slices[i].bytes);
  };
  // With one slice or none, the caller copies alone.
  const int wanted = std::min<int>(helpers_, int(slices.size()) - 1);
  std::latch ended(std::max(0, wanted));
  std::vector<Executor::Job> jobs;
  for (int i = 0; i < wanted; ++i) {
    const auto job = executor_->Submit("copy", [&] {
      work();
      ended.count_down();
    });
    if (job.ok()) {
      jobs.push_back(*job);
    } else {
      ended.count_down();  // the other threads copy its share
    }
  }
  work();
  ended.wait();
  // The executor marks a job as done after the count-down; wait for that too.
  for (const Executor::Job job : jobs) {
    while (!executor_->TakeDone(job)) std::this_thread::yield();
  }
}

}  // namespace troop
