#pragma once

#include <cstdint>

#include "core/config/config.h"
#include "net/control/shard_move.h"
#include "nn/module.h"
#include "paramserver/replication/primary_election.h"
#include "paramserver/service/local_replica.h"
#include "paramserver/service/shard_client.h"
#include "paramserver/service/shard_server.h"
#include "paramserver/shard/parameter_shard.h"
#include "paramserver/shard/shard_map.h"

namespace troop {

// Options of the parameter server derived from the config. All processes of a run use these
// functions, so that they get equal results: only the config and the network are inputs.

// Learners publish all weights in one message.
// Errors: kInvalidArgument: `parameters` floats are more than a message may have.
Status CheckWeightsMessage(std::int64_t parameters);
// Map of the first epoch. Errors: kInvalidArgument: a shard is larger than a message may be.
Result<ShardMap> ShardMapFor(const Config& config, const Module& network);
// Map of the last of `epochs`, starting from `first`. Deterministic. Errors: kDataLoss: another
// first epoch, or impossible steps.
Result<ShardMap> ShardMapAfter(const ShardMap& first, std::span<const ShardEpoch> epochs);
// Checks that each shard fits into a message. Errors: kInvalidArgument.
Status CheckShardMap(const ShardMap& map);
SyncOptions SyncOptionsFor(const Config& config);
// Number of workers that pull and push: learners, or groups of mesh.tp tensor-parallel learners.
std::int64_t WorkersOf(const Config& config);
// Pushes per update if all workers take part and none is dropped.
std::int64_t PushesOfUpdate(const Config& config);
GradientFilterOptions GradientFilterOptionsFor(const Config& config);
ReplicaOptions ReplicaOptionsFor(const Config& config);
CodecOptions CodecOptionsFor(const Config& config);
ParameterShard::Options ParameterShardOptionsFor(const Config& config, const Module& network,
                                                 const ShardMap& map, std::int32_t shard);
ShardServer::Options ShardServerOptionsFor(const Config& config);
ShardClient::Options ShardClientOptionsFor(const Config& config);
// Initial number of processes of the role: one weight publisher, or the shards and their backups.
std::int32_t ParameterServersOf(const Config& config);
// Processes per shard; they have consecutive indices.
std::int32_t ServersPerShard(const Config& config);
// Options of the primary election; the coordinator adds `next_term`.
PrimaryElection::Options PrimaryElectionOptionsFor(const Config& config);
// Time without contact to the coordinator after which a primary without a backup stops answering:
// another process may have replaced it. Less than PrimaryElection::Options::alone_max.
Duration PrimaryContactTimeoutFor(const Config& config);

}  // namespace troop
