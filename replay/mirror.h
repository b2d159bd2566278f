#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor.h"
#include "replay/client.h"
#include "replay/feed.h"

namespace troop {

// Some of a table, decoded, for a copy of it.
struct Experience {
  bool anew = false;         // the table is another one: what the copy has is gone
  FeedSizes sizes;           // of the table; the same until the next that is anew
  std::uint64_t oldest = 0;  // items with lower numbers have left
  Feed feed;                 // its frames' observations are these:
  Tensor observation;        // [F, ...obs]
};

// Takes the place of a replay's sampler where a copy of the table is drawn from by the learner
// itself (replay.placement = "gpu"). The replay keeps the experience, its limiter and its journal;
// it says when batches may be drawn and hands on what came, and gets the new priorities back, so
// that its snapshots have them and a learner that comes anew begins with them.
//
// Next gives batches without data: SampleBatch::experience, to be taken in before B items are drawn
// from the copy; or, while the copy is behind what the replay had when it was asked last, that
// alone, without keys. No more is asked for while kExperienceBytes wait for the owner. One shard.
// Owner: the learner's node thread; nothing blocks but decoding.
inline constexpr std::size_t kExperienceBytes = std::size_t{64} << 20;
std::unique_ptr<ReplaySampler> MakeReplayMirror(std::unique_ptr<Channel> channel,
                                                const TrajectorySpec& spec,
                                                const ReplaySampler::Options& options);

}  // namespace troop
