#pragma once

#include "core/config.h"
#include "core/trajectory.h"
#include "replay/client.h"
#include "replay/server.h"

namespace troop {

// What the keys of a config say of the replay; both ends of a run use these, so that they agree.
// A run's own table is number 0 at each shard.

// "auto": LZ4 for pictures of 1 KiB and more; smaller ones would hardly shrink.
Codec CodecFor(const std::string& name, const TensorSpec& observation);
ViewSpec ViewFor(const Config& config);
// Of one shard: capacity and minimum are spread. Errors: kInvalidArgument: replay.tables names
// what can't be read.
Result<ReplayServer::Options> ReplayOptionsFor(const Config& config,
                                               const TrajectorySpec& trajectory);
// One of replay.tables, of one shard likewise.
Result<ReplayTableOptions> ReplayTableFor(const ReplayTableConfig& table, std::int64_t seed,
                                          std::int64_t shards);
// The shards that an actor fills, or a learner draws from: their indices, in order. `shards`: how
// many there are by now; 0: as many as the config says.
std::vector<std::int32_t> ReplayShardsFor(const Config& config, std::int32_t index,
                                          std::int32_t shards = 0);
ReplayWriter::Options WriterOptionsFor(const Config& config, const TrajectorySpec& trajectory);
ReplaySampler::Options SamplerOptionsFor(const Config& config, const TrajectorySpec& trajectory);

}  // namespace troop
