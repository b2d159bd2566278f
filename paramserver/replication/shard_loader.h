#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/base/node.h"
#include "core/base/status.h"
#include "paramserver/replication/shard_snapshots.h"
#include "paramserver/shard/parameter_shard.h"

namespace troop {

// Loads the state that a new primary begins with, in a job: the newest intact snapshot, else the
// weights of the newest checkpoint, else the weights of a new run. A damaged snapshot without an
// intact replacement is an error, so a run never starts over silently. Owner: the node's thread;
// it must keep the loader until the job ends. Cost: O(n), and reads from the disk.
class ShardLoader {
 public:
  // Weights of the whole arena [P] from outside the snapshots; called in a job.
  struct Fallbacks {
    // Fills in the weights of a new run.
    std::function<Status(std::span<float>)> first_weights;
    // Fills in the newest checkpoint's weights and returns its number of updates; empty: there are
    // no checkpoints. Errors: kNotFound.
    std::function<Result<std::uint64_t>(std::span<float>)> checkpoint_weights;
  };
  struct Request {
    std::uint64_t since = 0;              // ShardTerm::since of the term that requires the state
    ShardSnapshots* snapshots = nullptr;  // must outlive the job
    ParameterShard::Options options;
    std::int64_t parameters = 0;  // of the whole arena
    // True if a snapshot must exist: every epoch after the first begins with one.
    bool snapshot_expected = false;
  };
  struct Loaded {
    std::uint64_t since = 0;  // of the request
    Result<std::unique_ptr<ParameterShard>> shard = Internal("not run");
  };

  // `shard`: the shard's number, for messages. `executor` must outlive the loader.
  ShardLoader(Executor* executor, std::int32_t shard, Fallbacks fallbacks)
      : executor_(executor), shard_(shard), fallbacks_(std::move(fallbacks)) {}

  // Starts a job. REQUIRES: !running().
  void Start(Request request);
  bool running() const { return job_ != nullptr; }
  // Takes the result once the job has ended; nullopt before that, and without a job. Errors in
  // Loaded::shard: kDataLoss: no intact state.
  std::optional<Loaded> TakeDone();

 private:
  struct Job {
    Executor::Job id = 0;
    Request request;
    Loaded loaded;
  };
  Result<std::unique_ptr<ParameterShard>> Load(const Request& request) const;
  Result<std::unique_ptr<ParameterShard>> LoadCheckpoint(const Request& request) const;

  Executor* const executor_;
  const std::int32_t shard_;
  const Fallbacks fallbacks_;
  std::unique_ptr<Job> job_;  // its address is known to the executor's thread
};

}  // namespace troop
