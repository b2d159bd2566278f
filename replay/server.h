#pragma once

#include <memory>

#include "core/config.h"
#include "core/metrics.h"
#include "core/trajectory.h"
#include "net/network.h"

namespace troop {

// One replay shard behind a Service: table, limiter, frame log. Owner: the node's thread.
// Requests that must wait for the limiter are parked, and answered in the order of arrival. Samples
// are counted when they are answered. Bytes from peers are checked before use; the messages are
// those of docs/protocol.md. Parked inserts are bounded by the windows of the writers.
// A sampler that drains gets kOutOfRange where it would wait; from then on, until some sampler asks
// without draining, inserts are taken at once: the last experience has nobody to wait for.
class ReplayServer : public Service {
 public:
  struct Options {
    TrajectorySpec trajectory;
    int n_step_max = 3;  // items longer than this are refused
    std::int64_t capacity_items = 100000;
    std::int64_t min_items = 1000;   // nothing is drawn below
    double alpha = 0.6;              // priorities are raised to it
    double priority_epsilon = 1e-6;  // and added to this before; 0: an error of 0 is never drawn
    std::int64_t trim_every_samples = 0;  // soft capacity: excess leaves in bulk, FIFO, each time
                                          // this many items were sampled (and at 9/8 of the
                                          // capacity); 0: at every insert
    double samples_per_insert = 8;        // of items, after the first min_items; 0: no limit
    double ratio_error = 0.1;             // band: ± this share of samples_per_insert * min_items
    std::uint64_t seed = 1;               // of the sampling stream
    std::int64_t batch_size_max = 1 << 16;
    // Its keys are no other's of the same place: an update that was on its way when a replay died
    // does not hit an item of its successor. Distances between the first 1000 are above half a
    // million generations, each a whole table of inserts. Its draws are its own likewise.
    std::uint64_t incarnation = 0;
  };
  virtual void Tick(Time now) = 0;  // tells the time, for the seconds that each side was blocked
  // replay/items, fill, bytes; inserts, samples, samples_per_insert, evicted, expired, repeated;
  // updates, stale_updates, refused_priorities, refused_requests; parked_inserts, parked_samples,
  // insert_blocked_s, sample_blocked_s; policy_version_mean and _min of the last reply.
  virtual void Report(Metrics* metrics) const = 0;
};

// Errors: kInvalidArgument: options that cannot work; kResourceExhausted: memory is refused.
Result<std::unique_ptr<ReplayServer>> MakeReplayServer(const ReplayServer::Options& options);

// Bytes that a replay of these options will take when full; for --dry-run and the memory check.
// REQUIRES: capacity_items >= 1.
std::size_t PredictReplayBytes(const ReplayServer::Options& options);

}  // namespace troop
