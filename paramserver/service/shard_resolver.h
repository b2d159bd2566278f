#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/control/fleet_member.h"
#include "net/network.h"
#include "paramserver/shard/shard_map.h"

namespace troop {

// Resolves the endpoints of a run's parameter shards and the current shard map, from the
// coordinator's heartbeat replies. Owner: the node's thread. The network and the member must
// outlive it.
class ShardResolver {
 public:
  // `first`: the map of the run's first epoch. `origin`: identity of the connecting role.
  ShardResolver(Network* network, const FleetMember* member, ShardMap first, const Origin& origin);
  // Connects to all shards of map(), in order; empty if some shard is not served yet.
  Result<std::vector<std::unique_ptr<Channel>>> Connect();
  // Newest map that Connect or Update has adopted.
  const ShardMap& map() const { return map_; }
  // Updates a client of all shards, such as ShardClient: Remap with the map of a newer epoch, or
  // Replace if another process serves a shard. Call after Connect.
  template <class Client>
  Status Update(Client* client) {
    if (IsOutdated()) {
      TROOP_ASSIGN_OR_RETURN(auto channels, Connect());
      if (!channels.empty()) client->Remap(map_, std::move(channels));
      return Status::Ok();
    }
    for (std::size_t k = 0; k < endpoints_.size(); ++k) {
      TROOP_ASSIGN_OR_RETURN(auto channel, ReconnectIfMoved(k));
      if (channel) client->Replace(k, std::move(channel));
    }
    return Status::Ok();
  }

 private:
  bool IsOutdated() const { return member_->shard_epochs().size() > epochs_; }
  // Connects to shard k if its endpoint has changed since the last channel; null otherwise.
  Result<std::unique_ptr<Channel>> ReconnectIfMoved(std::size_t k);
  std::string EndpointOf(std::size_t k) const;

  Network* const network_;
  const FleetMember* const member_;
  const ShardMap first_;
  ShardMap map_;
  std::size_t epochs_ = 0;  // number of epochs map_ is based on; 0: not connected yet
  ChannelOptions options_;
  std::vector<std::string> endpoints_;  // current endpoints
};

}  // namespace troop
