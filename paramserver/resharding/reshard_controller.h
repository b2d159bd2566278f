#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "net/control/shard_move.h"
#include "paramserver/replication/primary_election.h"

namespace troop {

// Reshards a running fleet to another number of parameter shards, in the stages of ShardMove: 1.
// wait for the processes of added shards; 2. pause the learners: they settle their open pushes and
// leave, so that no update waits for them and no push is held; 3. hand over: the shards pause, and
// each shard of the next map fetches the ranges that move to it and writes its whole state to disk.
// Writing the next epoch is the commit point: a crash before it keeps the old map, one after it
// uses the new map. Because learners leave, all shards have settled the same pushes: merged ranges
// need only one deduplication record and one clock, and no push is repeated.
// Invariants: an epoch is in epochs() only if every shard of it is on disk and `commit` has stored
// it; a resharding whose shards change primaries, or that times out, is canceled without effect.
// Owner: the coordinator's thread. Uses no clock and no files. O(members) per call.
class ReshardController {
 public:
  static constexpr std::size_t kEpochsMax = 1000;  // every heartbeat reply carries them
  struct Options {
    Duration gather_max = Seconds(30);  // for stage 1, during which nothing is paused
    Duration pause_max = Seconds(15);   // for stages 2 and 3, during which learners are paused
    // Stores the epochs durably.
    std::function<Status(const std::vector<ShardEpoch>&)> commit;
  };
  // A live process of the run.
  struct LiveProcess {
    std::int32_t index = 0;
    std::uint64_t incarnation = 0;
    std::uint64_t move = 0;  // HeartbeatRequest::shard_move
  };
  // Live processes, in any order: servers with an endpoint, and learners.
  struct LiveProcesses {
    std::vector<LiveProcess> servers, learners;
  };
  // `epochs`: all epochs so far, at least one. `terms`: those of the last epoch; must outlive this.
  ReshardController(Options options, std::vector<ShardEpoch> epochs, PrimaryElection* terms)
      : options_(std::move(options)), epochs_(std::move(epochs)), terms_(terms) {}

  // Begins a resharding. `number`: larger than all used before. Errors: kInvalidArgument: the
  // number of shards is unchanged; kFailedPrecondition: another resharding is under way;
  // kResourceExhausted: kEpochsMax.
  Status Begin(Time now, std::int32_t shards, std::uint64_t number);
  // Advances the resharding as far as it can. Returns its outcome, once.
  std::optional<Status> Update(Time now, const LiveProcesses& present);
  // Cancels the resharding; the old map stays. REQUIRES: one is under way.
  void Cancel() { move_ = {}; }

  const std::vector<ShardEpoch>& epochs() const { return epochs_; }
  const ShardMove& move() const { return move_; }  // number 0: none
  std::int32_t shards() const { return epochs_.back().shards; }
  // Number of server processes that the run needs, those of shards being added or removed included.
  std::int32_t servers() const;

 private:
  const LiveProcess* Find(const LiveProcesses& present, std::int32_t index) const;
  std::int32_t TargetOf(std::int32_t shard) const;
  Status CheckPrimariesUnchanged(const LiveProcesses& present) const;
  std::string DescribePending(const LiveProcesses& present) const;
  Status Commit(Time now, const LiveProcesses& present);

  const Options options_;
  std::vector<ShardEpoch> epochs_;
  PrimaryElection* const terms_;
  ShardMove move_;
  Time deadline_{};
  std::vector<std::uint64_t> since_;  // of the terms, when the leave of the learners was requested
};

}  // namespace troop
