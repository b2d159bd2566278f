#pragma once

#include <cstdint>

#include "core/config.h"
#include "nn/module.h"
#include "paramserver/local_replica.h"
#include "paramserver/parameter_shard.h"
#include "paramserver/shard_client.h"
#include "paramserver/shard_map.h"
#include "paramserver/shard_server.h"
#include "paramserver/shard_terms.h"

namespace troop {

// What the keys of a config say of the parameter shards. Every process of a run uses these, so that
// all agree: nothing but the config and the network goes in.

// Learners publish all weights in one message.
// Errors: kInvalidArgument: `parameters` floats are more than a message may have.
Status CheckWeightsMessage(std::int64_t parameters);
// Errors: kInvalidArgument: a shard's bytes are more than a message may have.
Result<ShardMap> ShardMapFor(const Config& config, const Module& network);
// The map of the last of `epochs`, of which the first is `first`. The same wherever it is made.
// Errors: kDataLoss: another beginning, or steps that can't be.
Result<ShardMap> ShardMapAfter(const ShardMap& first, std::span<const ShardEpoch> epochs);
// Errors: kInvalidArgument: as of ShardMapFor, and why.
Status CheckShardMap(const ShardMap& map);
SyncOptions SyncOptionsFor(const Config& config);
// Those who pull and push: learners, or each mesh.tp of them that have a model together.
std::int64_t WorkersOf(const Config& config);
// Pushes behind an update, where all take part and none is dropped.
std::int64_t PushesOfUpdate(const Config& config);
GuardOptions GuardOptionsFor(const Config& config);
ReplicaOptions ReplicaOptionsFor(const Config& config);
CodecOptions CodecOptionsFor(const Config& config);
ParameterShard::Options ParameterShardOptionsFor(const Config& config, const Module& network,
                                                 const ShardMap& map, std::int32_t shard);
ShardServer::Options ShardServerOptionsFor(const Config& config);
ShardClient::Options ShardClientOptionsFor(const Config& config);
// Processes of the role at the beginning: one that publishes weights, or the shards and their
// backups.
std::int32_t ParameterServersOf(const Config& config);
// Processes of one shard, which are numbered one after the other.
std::int32_t ServersPerShard(const Config& config);
// How the processes of the shards are watched over; for the coordinator, which adds `next_term`.
ShardTerms::Options ShardTermsOptionsFor(const Config& config);
// A primary without a backup answers nothing when it has not heard from the coordinator for so
// long: another may have taken its place. Less than ShardTerms::Options::alone_max.
Duration ShardAloneFor(const Config& config);

}  // namespace troop
