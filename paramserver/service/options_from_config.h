#pragma once

#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "core/base/time.h"
#include "net/control/shard_move.h"
#include "nn/models/model_setup.h"
#include "nn/module.h"
#include "paramserver/paramserver_config.h"
#include "paramserver/replication/primary_election.h"
#include "paramserver/service/local_replica.h"
#include "paramserver/service/shard_client.h"
#include "paramserver/service/shard_server.h"
#include "paramserver/shard/parameter_shard.h"
#include "paramserver/shard/shard_map.h"
#include "paramserver/shard_config.h"

namespace troop {

// Options of the parameter server derived from a run's settings. All processes of a run use these
// functions, so that they get equal results: only the settings and the network are inputs.

// Learners publish all weights in one message.
// Errors: kInvalidArgument: `parameters` floats are more than a message may have.
Status CheckWeightsMessage(std::int64_t parameters);
// Map of the first epoch. Errors: kInvalidArgument: a shard is larger than a message may be.
Result<ShardMap> ShardMapFor(const ParamServerConfig& config, const Module& network);
// Map of the last of `epochs`, starting from `first`. Deterministic. Errors: kDataLoss: another
// first epoch, or impossible steps.
Result<ShardMap> ShardMapAfter(const ShardMap& first, std::span<const ShardEpoch> epochs);
// Checks that each shard fits into a message. Errors: kInvalidArgument.
Status CheckShardMap(const ShardMap& map);
// Number of workers that pull and push: learners, or groups of mesh.tp tensor-parallel learners.
std::int64_t WorkersOf(std::int64_t learners, std::int64_t tp);
SyncOptions SyncOptionsFor(const ParamServerConfig& config, std::int64_t workers);
// True if the shards go through the same versions: IsSynchronous of SyncOptionsFor.
bool HasSynchronousShards(const ParamServerConfig& config);
// Pushes per update if all workers take part and none is dropped.
std::int64_t PushesOfUpdate(const ParamServerConfig& config, std::int64_t workers);
GradientFilterOptions GradientFilterOptionsFor(const ParamServerConfig& config);
ReplicaOptions ReplicaOptionsFor(const ParamServerConfig& config);
CodecOptions CodecOptionsFor(const ParamServerConfig& config);
ParameterShard::Options ParameterShardOptionsFor(const ShardConfig& config, const Module& network,
                                                 const ShardMap& map, std::int32_t shard);
ShardServer::Options ShardServerOptionsFor(const ParamServerConfig& config);
ShardClient::Options ShardClientOptionsFor(const ParamServerConfig& config);
// Processes per shard; they have consecutive indices.
std::int32_t ServersPerShard(const ParamServerConfig& config);
// Options of the primary election; the coordinator adds `next_term`.
PrimaryElection::Options PrimaryElectionOptionsFor(const ShardConfig& config);
// Time without contact to the coordinator after which a primary without a backup stops answering:
// another process may have replaced it. Less than PrimaryElection::Options::alone_max.
Duration PrimaryContactTimeoutFor(const ShardConfig& config);

}  // namespace troop
