// Implements the order of waiting requests.
#include "apps/serving/serving_queue.h"

#include <algorithm>
#include <utility>

namespace troop {

// Rows are counted, not requests: they are what the computation costs.
Status ServingQueue::Add(ServingRequest request) {
  if (rows_ + request.rows > options_.queue_rows_max) {
    return ResourceExhausted("the queue is full: {} rows wait, the limit is {}; retry later", rows_,
                             options_.queue_rows_max);
  }
  rows_ += request.rows;
  waiting_.push_back(std::move(request));
  return Status::Ok();
}

std::vector<ServingRequest> ServingQueue::TakeExpired(Time now) {
  std::vector<ServingRequest> expired;
  // All deadlines are equally far from their arrivals, so the first ones end first.
  while (!waiting_.empty() && waiting_.front().deadline <= now) {
    rows_ -= waiting_.front().rows;
    expired.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return expired;
}

// A batch is due when it is full, or when its oldest request has waited for long enough.
std::vector<ServingRequest> ServingQueue::TakeBatch(Time now) {
  std::vector<ServingRequest> batch;
  if (waiting_.empty()) return batch;
  if (rows_ < options_.rows_max && now < waiting_.front().arrived + options_.wait_max) return batch;
  std::int64_t rows = 0;
  while (!waiting_.empty() && rows + waiting_.front().rows <= options_.rows_max) {
    rows += waiting_.front().rows;
    batch.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  rows_ -= rows;
  return batch;
}

// A full batch is due at once; else the end of the wait or the first deadline.
Time ServingQueue::Due() const {
  if (waiting_.empty()) return kForever;
  const ServingRequest& first = waiting_.front();
  if (rows_ >= options_.rows_max) return first.arrived;
  return std::min(first.arrived + options_.wait_max, first.deadline);
}

}  // namespace troop
