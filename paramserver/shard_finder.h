#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/control.h"
#include "net/network.h"
#include "paramserver/shard_map.h"

namespace troop {

// Where the parameter shards of a run are served, as the coordinator says in its beats. Owner: the
// node's thread, as of the network and the member, which outlive it.
class ShardFinder {
 public:
  // `origin`: of who connects.
  ShardFinder(Network* network, const FleetMember* member, const ShardMap& map,
              const Origin& origin);
  // Channels to all shards, in order; empty: not all are served yet.
  Result<std::vector<std::unique_ptr<Channel>>> Connect();
  // A channel to shard k where another process serves it than the one that was given last; null:
  // none does. After Connect.
  Result<std::unique_ptr<Channel>> ConnectAnew(std::size_t k);
  std::size_t shards() const { return given_.size(); }
  // Tells a client of all shards, such as ShardClient, who is where by now.
  template <class Client>
  Status Update(Client* client) {
    for (std::size_t k = 0; k < given_.size(); ++k) {
      TROOP_ASSIGN_OR_RETURN(auto channel, ConnectAnew(k));
      if (channel) client->Replace(k, std::move(channel));
    }
    return Status::Ok();
  }

 private:
  std::string EndpointOf(std::size_t k) const;

  Network* const network_;
  const FleetMember* const member_;
  ChannelOptions options_;
  std::vector<std::string> given_;  // endpoints
};

}  // namespace troop
