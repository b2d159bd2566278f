#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/event_history.h"
#include "core/base/time.h"
#include "core/tensor/trajectory.h"
#include "net/network.h"
#include "replay/codec/frame_codec.h"
#include "replay/codec/sample_batch.h"
#include "replay/storage/item_view.h"

namespace troop {

// A table is spread over K servers, its *shards* (often one). All frames of a stream go to the
// same shard, chosen by the environment's number.
inline std::size_t ShardOf(StreamId stream, std::size_t shards) {
  return std::size_t(stream & 0xFFFFFFFFu) % shards;
}

// Pushes experience to the replay. Owner: the actor's node thread; no call blocks.
//
// At most options.window pushes are unacknowledged per shard. CanPush() == false is the
// backpressure of a slow or dead shard, or of the rate limiter. A push has no deadline: the
// limiter may park it for as long as the learner pauses. Pushes that a lost or restarted server
// did not acknowledge are resent in order and inserted once. Observations are encoded here, so
// that this work scales with the number of actors.
class ReplayWriter {
 public:
  struct Options {
    int window = 4;  // must be below the channels' own windows by one call
    EventHistory* history = nullptr;
    std::uint32_t table = 0;  // table number at the servers
    Codec codec = Codec::kNone;
  };
  virtual ~ReplayWriter() = default;
  virtual bool CanPush() const = 0;
  // Sends chunks and the items over them. REQUIRES: CanPush(); an item's frames are in this chunk
  // or in earlier chunks of its stream.
  virtual Status Push(std::vector<Chunk> chunks, std::vector<Item> items) = 0;
  // Adds the channel to shard k, which has none yet. The shard gets no pushes before Use.
  virtual void AddShard(std::size_t k, std::unique_ptr<Channel> channel) = 0;
  virtual bool Knows(std::size_t k) const = 0;
  // Distributes streams over the first `shards` shards from now on. REQUIRES: shards that get
  // streams have a channel; no item of a stream that moves to another shard refers to frames
  // already pushed.
  virtual void Use(std::size_t shards) = 0;
  // True if no push to a shard with index >= `shards` is unacknowledged.
  virtual bool Settled(std::size_t shards) const = 0;
  // Processes acknowledgements, resends, and fetches dictionaries.
  virtual void Poll(Time now) = 0;
  // Totals over all shards.
  virtual std::uint64_t pushed_items() const = 0;
  virtual std::uint64_t acked_items() const = 0;
  // Number of pushes from the oldest one that is not fully acknowledged; pushes complete in order.
  virtual int unacked_pushes() const = 0;
  virtual Status error() const = 0;  // permanent refusal; ok if none
};

// Prefetches sampled batches. Owner: the learner's node thread. Nothing blocks except decoding,
// which Next does on the calling thread, helped by options.decode_threads.
//
// The B strata of a batch are split over the shards in proportion to their last reported totals,
// each share rounded up or down at random (systematic sampling). So an item of shard k is sampled
// with probability T_k / Σ T · p_i / T_k whatever the shards' sizes. The rate limiters are charged
// in proportion to their remaining credit, not to the samples, so that unequal priorities never
// make one side wait for the other. A shard that is down or hung gets no share until it answers
// again, and its open requests are sampled from other shards. Samples count when the owner takes
// them: at most prefetch * batches_per_request batches are reserved at the servers and not yet
// taken.
class ReplaySampler {
 public:
  struct Options {
    std::int64_t batch_size = 32;
    int prefetch = 4;  // requests in flight, or answered and not fully consumed
    int batches_per_request = 1;
    double beta = 0.4;        // until SetBeta
    std::uint32_t table = 0;  // table number at the servers
    ViewSpec view;
    Codec codec = Codec::kNone;
    int decode_threads = 0;  // in addition to the caller's thread
    std::uint64_t seed = 1;  // for rounding the shares
    // Time after which a request to a shard that delays a batch is repeated without its charge,
    // which moves to another shard.
    Duration waive_after = Milliseconds(20);
    Duration patience = Seconds(2);  // a shard without an answer for this long counts as dead
  };
  virtual ~ReplaySampler() = default;
  // Appends a shard, which is sampled once it has reported its total. A shard that is removed for
  // good counts as dead: its index stays, for a later shard of the same index.
  virtual void AddShard(std::unique_ptr<Channel> channel) = 0;
  // Sends requests and takes replies.
  virtual void Poll(Time now) = 0;
  // Returns the next batch, or an empty optional if none is ready. kOutOfRange: the replay has
  // drained and gives no more.
  virtual Result<std::optional<SampleBatch>> Next() = 0;
  // Reports |TD error| of sampled items; sent with the next request, or alone if none is due.
  virtual void UpdatePriorities(std::span<const ItemKey> keys, std::span<const float> priority) = 0;
  // Sets the newest policy version (WeightsVersion), from which the ages of items count; sent with
  // all later requests. Without any such report, the newest version of any item is used.
  virtual void ObservePolicyVersion(std::uint64_t version) = 0;
  // Sets the exponent of the importance weights for batches that Next returns from now on.
  // REQUIRES: 0 <= beta <= 1.
  virtual void SetBeta(double beta) = 0;
  // Announces that no more experience will arrive: instead of waiting for the rate limiter, Next
  // ends with kOutOfRange.
  virtual void Drain() = 0;
  virtual int ready_batches() const = 0;
  virtual int shards_alive() const = 0;
};

// `shards`: one channel per shard, by index. A writer may pass nullptr for shards that none of its
// streams go to.
std::unique_ptr<ReplayWriter> MakeReplayWriter(std::vector<std::unique_ptr<Channel>> shards,
                                               const TrajectorySpec& spec,
                                               const ReplayWriter::Options& options);
std::unique_ptr<ReplaySampler> MakeReplaySampler(std::vector<std::unique_ptr<Channel>> shards,
                                                 const TrajectorySpec& spec,
                                                 const ReplaySampler::Options& options);
// Convenience overloads for a single shard.
std::unique_ptr<ReplayWriter> MakeReplayWriter(std::unique_ptr<Channel> channel,
                                               const TrajectorySpec& spec,
                                               const ReplayWriter::Options& options);
std::unique_ptr<ReplaySampler> MakeReplaySampler(std::unique_ptr<Channel> channel,
                                                 const TrajectorySpec& spec,
                                                 const ReplaySampler::Options& options);

}  // namespace troop
