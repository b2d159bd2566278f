#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "apps/serving/served_model.h"
#include "core/base/time.h"

namespace troop {

// Requests that wait, and the batches that they form. It reads no clock and is not thread-safe
// (BatchWorker holds the lock). Invariants: first in, first out; a batch has at most `rows_max`
// rows, and a request is never divided; at most `queue_rows_max` rows wait.
class ServingQueue {
 public:
  struct Options {
    std::int64_t rows_max = 64;  // of a batch; a request has at most as many
    std::int64_t queue_rows_max = 1024;
    Duration wait_max{};  // time for which the oldest request waits for others
  };
  explicit ServingQueue(const Options& options) : options_(options) {}

  // Adds a request. Errors: kResourceExhausted: the queue is full; nothing has changed.
  Status Add(ServingRequest request);
  // Removes the requests whose deadline has passed.
  std::vector<ServingRequest> TakeExpired(Time now);
  // Removes the next batch; empty: nothing waits, or the oldest request can wait for others.
  std::vector<ServingRequest> TakeBatch(Time now);
  // The time at which the next batch or expiry is due; kForever: nothing waits.
  Time Due() const;
  std::int64_t rows() const { return rows_; }

 private:
  const Options options_;
  std::deque<ServingRequest> waiting_;
  std::int64_t rows_ = 0;
};

}  // namespace troop
