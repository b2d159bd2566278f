// Implements the lookup of parameter shards through the coordinator's heartbeat replies.
#include "paramserver/service/shard_resolver.h"

#include <algorithm>
#include <utility>

#include "paramserver/service/options_from_config.h"

namespace troop {

ShardResolver::ShardResolver(Network* network, const FleetMember* member, ShardMap first,
                             const Origin& origin)
    : network_(network),
      member_(member),
      first_(std::move(first)),
      map_(first_),
      options_{.origin = origin} {}

// Endpoint of the shard's primary; empty if there is none.
std::string ShardResolver::EndpointOf(std::size_t k) const {
  const ShardTerm term = member_->Shard(std::int32_t(k));
  return term.primary < 0 ? std::string() : member_->Endpoint(Role::kParamServer, term.primary);
}

// Nothing changes unless all shards are served.
Result<std::vector<std::unique_ptr<Channel>>> ShardResolver::Connect() {
  std::vector<std::unique_ptr<Channel>> channels;
  const std::span<const ShardEpoch> epochs = member_->shard_epochs();
  if (epochs.empty()) return channels;
  const auto count = std::size_t(epochs.back().shards);
  for (std::size_t k = 0; k < count; ++k) {
    if (EndpointOf(k).empty()) return channels;
  }
  // Only a complete set of endpoints is used: a client needs all shards.
  TROOP_ASSIGN_OR_RETURN(map_, ShardMapAfter(first_, epochs));
  epochs_ = epochs.size();
  // Room for two pushes and a pull, so that a pull does not wait for pushes.
  for (const std::int32_t shard : map_.shards()) {
    const std::size_t bytes = std::size_t(map_.LoadOf(shard)) * sizeof(float);
    options_.window_bytes = std::max(options_.window_bytes, 3 * bytes);
  }
  endpoints_.resize(count);
  for (std::size_t k = 0; k < count; ++k) {
    endpoints_[k] = EndpointOf(k);
    TROOP_ASSIGN_OR_RETURN(auto channel, network_->Connect(endpoints_[k], options_));
    channels.push_back(std::move(channel));
  }
  return channels;
}

// The endpoint identifies the process.
Result<std::unique_ptr<Channel>> ShardResolver::ReconnectIfMoved(std::size_t k) {
  const std::string endpoint = EndpointOf(k);
  if (endpoint.empty() || endpoint == endpoints_[k]) return std::unique_ptr<Channel>();
  endpoints_[k] = endpoint;
  return network_->Connect(endpoint, options_);
}

}  // namespace troop
