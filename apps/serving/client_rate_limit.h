#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <unordered_map>

#include "core/base/time.h"

namespace troop {

// A limit on the request rate of each client: a token bucket per address, which holds the requests
// of one second. One owner thread. Bounded memory: of more than `clients_max` addresses, the one
// that has been silent for longest is forgotten. O(1).
class ClientRateLimit {
 public:
  // per_second: requests of one client; 0: no limit.
  explicit ClientRateLimit(double per_second, std::size_t clients_max = 4096)
      : per_second_(per_second), clients_max_(clients_max) {}

  // Counts a request. Returns zero if it is admitted, else the time until the next one would be.
  Duration Admit(const std::string& client, Time now);
  std::size_t clients() const { return buckets_.size(); }

 private:
  struct Bucket {
    std::string client;
    double tokens = 0;
    Time last{};
  };

  const double per_second_;
  const std::size_t clients_max_;
  std::list<Bucket> buckets_;  // least recently used first
  std::unordered_map<std::string, std::list<Bucket>::iterator> by_client_;
};

}  // namespace troop
