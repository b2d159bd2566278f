#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/time.h"
#include "net/message.h"
#include "net/network.h"
#include "replay/table/rate_limiter.h"

namespace troop {

// The samplers of one table, and how much of what each reserved its owner has taken. Samples are
// *reserved* when a reply is made and *delivered* when the sampler reports that its owner took
// them. What a restarted or lost sampler had reserved is released. Owner: the table's server, on
// one thread. O(log clients) per call.
class SamplerClients {
 public:
  using Key = std::pair<Role, std::int32_t>;  // role and index of a client

  // `limiter` outlives this object.
  explicit SamplerClients(RateLimiter* limiter) : limiter_(limiter) {}

  // Notes a request of a client, and the number of items that its owner has taken. What its earlier
  // incarnation had reserved is released.
  void NoteTaken(const Origin& origin, std::uint64_t taken);
  // Reserves items for a client. Returns the total that it has reserved.
  std::uint64_t Reserve(const Origin& origin, std::int64_t items);
  // Notes the state of a client's connection. `now`: nullopt before the first tick.
  void NotePeer(const Origin& origin, PeerState state, std::optional<Time> now);
  // Removes clients that stay away, and releases what they reserved. Returns them. A tool has a
  // new index in each run, so no newer incarnation would release it.
  std::vector<Key> Forget(Time now);
  // True if a newer incarnation of the caller has sent a request.
  bool Fenced(const Origin& origin) const;

 private:
  // Counts in items.
  struct Client {
    std::uint64_t incarnation = 0, reserved = 0, delivered = 0;
    std::optional<Time> gone;  // time of disconnection; nullopt: connected
  };

  RateLimiter* limiter_;
  std::map<Key, Client> clients_;
};

}  // namespace troop
