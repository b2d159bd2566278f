#pragma once

#include <memory>

#include "core/config.h"
#include "core/metrics.h"
#include "core/trajectory.h"
#include "net/network.h"

namespace troop {

// One replay shard behind a Service: table, limiter, frame log. Owner: the node's thread.
// Requests that must wait for the limiter are parked. Bytes from peers are checked before use.
class ReplayServer : public Service {
 public:
  struct Options {
    TrajectorySpec trajectory;
    int n_step_max = 3;                 // items longer than this are refused
    std::int64_t capacity_items = 100000;
    std::int64_t min_items = 1000;
    double alpha = 0.6;
    double priority_epsilon = 1e-6;
    std::int64_t trim_every_samples = 0;  // soft capacity: excess leaves in bulk, FIFO, each time
                                          // this many items were sampled; 0: at every insert
    double samples_per_insert = 8;
    double ratio_error = 0.1;
    std::uint64_t seed = 1;             // of the sampling stream
    std::int64_t batch_size_max = 1 << 16;
  };
  virtual void Tick(Time now) = 0;      // answers parked calls, expires
  virtual void Report(Metrics* metrics) const = 0;
};

Result<std::unique_ptr<ReplayServer>> MakeReplayServer(const ReplayServer::Options& options);

// Bytes that a replay of these options will take when full; for --dry-run and the memory check.
std::size_t PredictReplayBytes(const ReplayServer::Options& options);

}  // namespace troop
