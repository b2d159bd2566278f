#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/control.h"
#include "net/network.h"
#include "paramserver/shard_map.h"

namespace troop {

// Where the parameter shards of a run are served, and how the parameters lie on them, as the
// coordinator says in its beats. Owner: the node's thread, as of the network and the member, which
// outlive it.
class ShardFinder {
 public:
  // `first`: the map of the run's beginning. `origin`: of who connects.
  ShardFinder(Network* network, const FleetMember* member, ShardMap first, const Origin& origin);
  // Channels to all shards of map(), in order; empty: not all are served yet.
  Result<std::vector<std::unique_ptr<Channel>>> Connect();
  // The newest that Connect or Update has taken up.
  const ShardMap& map() const { return map_; }
  // Tells a client of all shards, such as ShardClient, who is where by now: Remap with the map of a
  // newer epoch, or Replace where another process serves a shard. After Connect.
  template <class Client>
  Status Update(Client* client) {
    if (IsOutdated()) {
      TROOP_ASSIGN_OR_RETURN(auto channels, Connect());
      if (!channels.empty()) client->Remap(map_, std::move(channels));
      return Status::Ok();
    }
    for (std::size_t k = 0; k < given_.size(); ++k) {
      TROOP_ASSIGN_OR_RETURN(auto channel, ConnectAnew(k));
      if (channel) client->Replace(k, std::move(channel));
    }
    return Status::Ok();
  }

 private:
  bool IsOutdated() const { return member_->shard_epochs().size() > epochs_; }
  // A channel to shard k where another process serves it than the one that was given last; null:
  // none does.
  Result<std::unique_ptr<Channel>> ConnectAnew(std::size_t k);
  std::string EndpointOf(std::size_t k) const;

  Network* const network_;
  const FleetMember* const member_;
  const ShardMap first_;
  ShardMap map_;
  std::size_t epochs_ = 0;  // of map_; 0: not connected yet
  ChannelOptions options_;
  std::vector<std::string> given_;  // endpoints
};

}  // namespace troop
