#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor/tensor.h"
#include "replay/codec/table_delta.h"
#include "replay/service/client.h"

namespace troop {

// A decoded table delta for a replica.
struct DecodedDelta {
  bool anew = false;         // the table was replaced: clear the replica first
  ReplicaSizes sizes;        // sizes of the table; constant until the next replacement
  std::uint64_t oldest = 0;  // items with lower numbers were evicted
  TableDelta feed;           // without its observations, which are here:
  Tensor observation;        // [F, ...obs]
};

// GPU replay (replay.placement = "gpu"): replaces the sampler when the learner samples a replica
// of the table. The replay server keeps the experience, the rate limiter and the journal. It
// decides when batches may be sampled, sends table deltas, and receives the new priorities, so
// that its snapshots contain them and a restarted learner begins with them.
//
// Next returns batches without data: SampleBatch::experience holds the deltas to apply before B
// items are sampled from the replica. While the replica lags the table, Next returns only deltas,
// without keys. No more are requested while kDecodedDeltaBytesMax wait for the owner. Supports one
// shard. Owner: the learner's node thread; nothing blocks except decoding.
inline constexpr std::size_t kDecodedDeltaBytesMax = std::size_t{64} << 20;
std::unique_ptr<ReplaySampler> MakeDeltaSampler(std::unique_ptr<Channel> channel,
                                                const TrajectorySpec& spec,
                                                const ReplaySampler::Options& options);

}  // namespace troop
