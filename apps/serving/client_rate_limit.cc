// Implements token buckets by client address.
#include "apps/serving/client_rate_limit.h"

#include <algorithm>

namespace troop {

// A bucket holds at least one token, so that rates below one per second admit requests too.
Duration ClientRateLimit::Admit(const std::string& client, Time now) {
  if (per_second_ <= 0) return Duration(0);
  const double capacity = std::max(1.0, per_second_);
  auto found = by_client_.find(client);
  if (found == by_client_.end()) {
    if (buckets_.size() >= clients_max_) {
      by_client_.erase(buckets_.front().client);
      buckets_.pop_front();
    }
    buckets_.push_back({.client = client, .tokens = capacity, .last = now});
    found = by_client_.emplace(client, std::prev(buckets_.end())).first;
  }
  Bucket& bucket = *found->second;
  buckets_.splice(buckets_.end(), buckets_, found->second);
  bucket.tokens = std::min(capacity, bucket.tokens + ToSeconds(now - bucket.last) * per_second_);
  bucket.last = now;
  // Never zero, which means admitted: a rounding error may leave less than a nanosecond.
  if (bucket.tokens < 1) return std::max(Duration(1), Seconds((1 - bucket.tokens) / per_second_));
  bucket.tokens -= 1;
  return Duration(0);
}

}  // namespace troop
