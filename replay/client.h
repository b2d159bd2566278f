#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/time.h"
#include "core/trajectory.h"
#include "net/network.h"
#include "replay/sample.h"

namespace troop {

// Pushes experience. Owner: the actor's node thread; nothing blocks. At most options.window pushes
// are unacknowledged; CanPush false is the back-pressure (a slow server, or the rate limiter).
// A push has no deadline: the limiter may park it for as long as the learner rests. What a lost or
// restarted server did not acknowledge is sent again, in order, and inserted once.
class ReplayWriter {
 public:
  struct Options {
    int window = 4;
  };
  virtual ~ReplayWriter() = default;
  virtual bool CanPush() const = 0;
  // REQUIRES: CanPush(). An item's frames are in this chunk or in earlier ones of its stream.
  virtual Status Push(std::vector<Chunk> chunks, std::vector<Item> items) = 0;
  virtual void Poll(Time now) = 0;
  virtual std::uint64_t pushed_items() const = 0;
  virtual std::uint64_t acked_items() const = 0;
  virtual int unacked_pushes() const = 0;
  virtual Status error() const = 0;  // a refusal that no retry can mend; ok otherwise
};

// Draws batches ahead of need. Owner: the learner's node thread; nothing blocks.
// The server counts samples when it answers: at most prefetch * batches_per_request batches are
// counted and not taken. What the owner took and has not used yet (the learner: two jobs of up to
// 16 batches) comes on top.
class ReplaySampler {
 public:
  struct Options {
    std::int64_t batch_size = 32;
    int prefetch = 4;  // requests in flight, or answered and not wholly taken
    int batches_per_request = 1;
    double beta = 0.4;
  };
  virtual ~ReplaySampler() = default;
  virtual void Poll(Time now) = 0;
  // Not ready: an empty optional. kOutOfRange: the replay is closed (Drain) and gives no more.
  virtual Result<std::optional<SampleBatch>> Next() = 0;
  // |TD error| of drawn items; travels with the next request, or alone when none is due.
  virtual void UpdatePriorities(std::span<const ItemKey> keys, std::span<const float> priority) = 0;
  // No more experience will come: rather than wait for the rate limiter, end with kOutOfRange.
  virtual void Drain() = 0;
  virtual int ready_batches() const = 0;
};

std::unique_ptr<ReplayWriter> MakeReplayWriter(std::unique_ptr<Channel> channel,
                                               const TrajectorySpec& spec,
                                               const ReplayWriter::Options& options);
std::unique_ptr<ReplaySampler> MakeReplaySampler(std::unique_ptr<Channel> channel,
                                                 const TrajectorySpec& spec,
                                                 const ReplaySampler::Options& options);

}  // namespace troop
