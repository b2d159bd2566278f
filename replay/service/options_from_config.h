#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/replay_config.h"
#include "replay/replay_setup.h"
#include "replay/service/client.h"
#include "replay/service/server.h"

namespace troop {

// Replay options from a run's settings. Both ends of a run use these functions, so their options
// match. The run's own table has number 0 at each shard.

// Codec of a config. "auto": LZ4 for images of 1 KiB and more; smaller ones hardly shrink.
Codec CodecFor(FrameCompression compression, const TensorSpec& observation);
// Tensors of an item in the run's own table. The state of an item is the network's recurrent state
// before its first step (of the burn-in), f32[state_columns], then the numbers of its steps (log
// μ(a_t | s_t) first), 0 past its end, f32[numbers_per_step, unroll_length]. Items without either
// have no state.
TrajectorySpec TrajectoryFor(const ReplaySetup& setup, const EnvSpec& env);

// View of the run's own table: transitions of n_step steps, or sequences of unroll_length steps,
// with stacked frames.
ViewSpec ViewFor(const ReplaySetup& setup);
// Options of one shard: capacity and minimum are divided by the number of shards. Errors:
// kInvalidArgument: replay.tables contains an invalid entry.
Result<ReplayServer::Options> ReplayOptionsFor(const ReplaySetup& setup,
                                               const TrajectorySpec& trajectory);
// Options of one entry of replay.tables, likewise for one shard.
Result<ReplayTableOptions> ReplayTableFor(const ReplayTableConfig& table, std::int64_t seed,
                                          std::int64_t shards);
// Indices of the shards that an actor writes to or a learner samples from, in order. `shards`:
// their current number; 0: as configured.
std::vector<std::int32_t> ReplayShardsFor(const ReplayConfig& config, std::int32_t index,
                                          std::int32_t shards = 0);
// The caller adds the number of inserts in flight.
ReplayWriter::Options WriterOptionsFor(const ReplayConfig& config,
                                       const TrajectorySpec& trajectory);
// The caller adds the numbers of prefetched batches; in serial mode it sets decode_threads to 0.
ReplaySampler::Options SamplerOptionsFor(const ReplaySetup& setup,
                                         const TrajectorySpec& trajectory);

}  // namespace troop
