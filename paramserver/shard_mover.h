#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/time.h"
#include "net/control.h"
#include "paramserver/shard_terms.h"

namespace troop {

// Takes a run from one number of parameter shards to another while it goes on, in the stages of
// ShardMove: processes of shards that come are awaited; learners have their open pushes settled and
// leave, so that nobody waits for them and nothing is held; the shards stand still, and each of the
// next map fetches what moves to it and writes all its state to the disk. Then the next epoch is
// written down: that is the move. Who dies before leaves the old map, who dies after it the new
// one. Learners leave so that all shards have settled the same pushes: one ledger and one clock do
// for what is joined, and nothing needs to be sent again.
// Invariants: an epoch is in epochs() only when every shard of it is on the disk and `commit` has
// it; a move whose shards change hands, or that takes too long, is given up and changes nothing.
// Owner: the coordinator's thread. No clock, no files. O(members) a call.
class ShardMover {
 public:
  static constexpr std::size_t kEpochsMax = 1000;  // every beat tells them
  struct Options {
    Duration gather_max = Seconds(30);  // nothing stands still
    Duration pause_max = Seconds(15);   // learners do
    // Writes the epochs down, durably.
    std::function<Status(const std::vector<ShardEpoch>&)> commit;
  };
  struct Player {
    std::int32_t index = 0;
    std::uint64_t incarnation = 0;
    std::uint64_t move = 0;  // BeatRequest::shard_move
  };
  // Who is there, in any order: servers that are bound, and learners.
  struct Present {
    std::vector<Player> servers, learners;
  };
  // `epochs`: up to now, one at least. `terms`: of the last of them; outlives it.
  ShardMover(Options options, std::vector<ShardEpoch> epochs, ShardTerms* terms)
      : options_(std::move(options)), epochs_(std::move(epochs)), terms_(terms) {}

  // `number`: never used before, and larger than those that were. Errors: kInvalidArgument: as
  // many as there are; kFailedPrecondition: another move is under way; kResourceExhausted:
  // kEpochsMax.
  Status Begin(Time now, std::int32_t shards, std::uint64_t number);
  // Goes on with what is due. How the move ended, once.
  std::optional<Status> Update(Time now, const Present& present);
  // The old map stays. REQUIRES: a move is under way.
  void GiveUp() { move_ = {}; }

  const std::vector<ShardEpoch>& epochs() const { return epochs_; }
  const ShardMove& move() const { return move_; }  // number 0: none
  std::int32_t shards() const { return epochs_.back().shards; }
  // Processes that the run has: also of shards that come, or have not left yet.
  std::int32_t servers() const;

 private:
  const Player* Find(const Present& present, std::int32_t index) const;
  std::int32_t TargetOf(std::int32_t shard) const;
  Status Undisturbed(const Present& present) const;
  std::string Awaited(const Present& present) const;
  Status Commit(Time now, const Present& present);

  const Options options_;
  std::vector<ShardEpoch> epochs_;
  ShardTerms* const terms_;
  ShardMove move_;
  Time deadline_{};
  std::vector<std::uint64_t> since_;  // of the terms, when learners were told to leave
};

}  // namespace troop
