#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/history.h"
#include "core/time.h"
#include "core/trajectory.h"
#include "net/network.h"
#include "replay/frame_codec.h"
#include "replay/sample.h"
#include "replay/view.h"

namespace troop {

// A table is spread over K servers, its *shards* (often one). A stream's frames all go to one of
// them, by the number of its environment.
inline std::size_t ShardOf(StreamId stream, std::size_t shards) {
  return std::size_t(stream & 0xFFFFFFFFu) % shards;
}

// Pushes experience. Owner: the actor's node thread; nothing blocks. At most options.window pushes
// are unacknowledged at each shard; CanPush false is the back-pressure (a slow or dead shard, or
// the rate limiter). A push has no deadline: the limiter may park it for as long as the learner
// rests. What a lost or restarted server did not acknowledge is sent again, in order, and inserted
// once. Observations are encoded here, so that this work grows with the actors.
class ReplayWriter {
 public:
  struct Options {
    int window = 4;  // the channels' own windows must have room for one call more
    History* history = nullptr;
    std::uint32_t table = 0;  // its number at the servers
    Codec codec = Codec::kNone;
  };
  virtual ~ReplayWriter() = default;
  virtual bool CanPush() const = 0;
  // REQUIRES: CanPush(). An item's frames are in this chunk or in earlier ones of its stream.
  virtual Status Push(std::vector<Chunk> chunks, std::vector<Item> items) = 0;
  // The way to shard k, where none is known. It gets nothing before Use.
  virtual void AddShard(std::size_t k, std::unique_ptr<Channel> channel) = 0;
  virtual bool Knows(std::size_t k) const = 0;
  // From now on streams go to the first `shards`. REQUIRES: those that get any are known; no item
  // of a stream that goes to another shard than before has frames that were pushed already.
  virtual void Use(std::size_t shards) = 0;
  // Nothing that went to a shard behind the first `shards` is unacknowledged.
  virtual bool Settled(std::size_t shards) const = 0;
  virtual void Poll(Time now) = 0;
  virtual std::uint64_t pushed_items() const = 0;
  virtual std::uint64_t acked_items() const = 0;
  // From the oldest that is not acknowledged whole; pushes end in their order.
  virtual int unacked_pushes() const = 0;
  virtual Status error() const = 0;  // a refusal that no retry can mend; ok otherwise
};

// Draws batches ahead of need. Owner: the learner's node thread; nothing blocks but decoding, which
// Next does itself, helped by options.decode_threads.
//
// The B strata of a batch go to the shards by their totals as last told, each its share rounded up
// or down at random (systematic sampling), so an item of shard k is drawn with chance
// T_k / Σ T · p_i / T_k whatever the shards' sizes. The limiters are charged by the credit that
// each has left, not by draws: unequal priorities never make one side wait for the other. A shard
// that is down or hung has no share until it answers again; what was asked of it is drawn
// elsewhere. Samples count when the owner takes them: at most prefetch * batches_per_request
// batches are reserved at the servers and not taken.
class ReplaySampler {
 public:
  struct Options {
    std::int64_t batch_size = 32;
    int prefetch = 4;  // requests in flight, or answered and not wholly taken
    int batches_per_request = 1;
    double beta = 0.4;        // until SetBeta
    std::uint32_t table = 0;  // its number at the servers
    ViewSpec view;
    Codec codec = Codec::kNone;
    int decode_threads = 0;  // beside the caller's
    std::uint64_t seed = 1;  // of the rounding of shares
    // One shard keeps the others' answers waiting for so long: it is asked without its charge,
    // which goes to another one.
    Duration waive_after = Milliseconds(20);
    Duration patience = Seconds(2);  // after that without an answer it counts as dead
  };
  virtual ~ReplaySampler() = default;
  // Another shard behind the others, which is drawn from once it has said its total. One that ends
  // for good is one that is dead: its place stays, for another of its index.
  virtual void AddShard(std::unique_ptr<Channel> channel) = 0;
  virtual void Poll(Time now) = 0;
  // Not ready: an empty optional. kOutOfRange: the replay is closed (Drain) and gives no more.
  virtual Result<std::optional<SampleBatch>> Next() = 0;
  // |TD error| of drawn items; travels with the next request, or alone when none is due.
  virtual void UpdatePriorities(std::span<const ItemKey> keys, std::span<const float> priority) = 0;
  // The newest version of the policy (WeightsVersion): told with all later requests, it is what
  // items' ages count from. Where no sampler says one, it is the newest of any item.
  virtual void SeePolicyVersion(std::uint64_t version) = 0;
  // The exponent of the importance weights of batches that Next gives from now on. REQUIRES: from 0
  // to 1.
  virtual void SetBeta(double beta) = 0;
  // No more experience will come: rather than wait for the rate limiter, end with kOutOfRange.
  virtual void Drain() = 0;
  virtual int ready_batches() const = 0;
  virtual int shards_alive() const = 0;
};

// The channels lead to the shards, in the order of their indices. A writer whose streams never go
// to a shard needs none to that one: nullptr.
std::unique_ptr<ReplayWriter> MakeReplayWriter(std::vector<std::unique_ptr<Channel>> shards,
                                               const TrajectorySpec& spec,
                                               const ReplayWriter::Options& options);
std::unique_ptr<ReplaySampler> MakeReplaySampler(std::vector<std::unique_ptr<Channel>> shards,
                                                 const TrajectorySpec& spec,
                                                 const ReplaySampler::Options& options);
// Of a single shard.
std::unique_ptr<ReplayWriter> MakeReplayWriter(std::unique_ptr<Channel> channel,
                                               const TrajectorySpec& spec,
                                               const ReplayWriter::Options& options);
std::unique_ptr<ReplaySampler> MakeReplaySampler(std::unique_ptr<Channel> channel,
                                                 const TrajectorySpec& spec,
                                                 const ReplaySampler::Options& options);

}  // namespace troop
