// Implements ConnectWeights: chooses the weight publisher or the parameter shards by learner.sync.
#include "paramserver/service/connect_weights.h"

#include <utility>
#include <vector>

#include "nn/models/model.h"
#include "paramserver/service/options_from_config.h"
#include "paramserver/service/shard_resolver.h"
#include "paramserver/service/shard_subscriber.h"

namespace troop {

Result<std::unique_ptr<WeightSubscriber>> ConnectWeights(const WeightsConfig& config,
                                                         const ModelSetup& model,
                                                         const EnvSpec& env, Network* network,
                                                         const FleetMember* member) {
  std::unique_ptr<WeightSubscriber> weights;
  const FleetMember::Options& own = member->options();
  const Origin origin{.role = own.role, .index = own.index, .incarnation = own.incarnation};
  // One weight publisher serves the whole model.
  if (config.sync != LearnerSync::kParamServer) {
    const std::string endpoint = member->Endpoint(Role::kParamServer, 0);
    if (endpoint.empty()) return weights;
    TROOP_ASSIGN_OR_RETURN(auto channel, network->Connect(endpoint, {.origin = origin}));
    return MakeWeightSubscriber(std::move(channel));
  }
  // Parameter shards: all must have a primary before the first connection.
  if (member->Shard(0).term == 0) return weights;
  TROOP_ASSIGN_OR_RETURN(const auto module, MakeNetwork(model, env));
  TROOP_ASSIGN_OR_RETURN(ShardMap map, ShardMapFor(config.paramserver, *module));
  auto resolver = std::make_unique<ShardResolver>(network, member, std::move(map), origin);
  TROOP_ASSIGN_OR_RETURN(auto channels, resolver->Connect());
  if (channels.empty()) return weights;
  weights = std::make_unique<ShardSubscriber>(resolver->map(), std::move(channels),
                                              HasSynchronousShards(config.paramserver),
                                              std::move(resolver));
  return weights;
}

}  // namespace troop
