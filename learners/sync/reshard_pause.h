#pragma once

#include <cstdint>

#include "net/control/fleet_member.h"
#include "net/control/shard_move.h"

namespace troop {

// A learner's pause during a resharding (ReshardController): while the shards hand over their
// ranges, the learner has left them, and has reported so to the coordinator. Owner: the node's
// thread. Uses no sockets.
class ReshardPause {
 public:
  // `member` must outlive the pause.
  explicit ReshardPause(FleetMember* member) : member_(member) {}

  // True while the shards wait for the learners to leave, or hand over.
  bool requested() const {
    const ShardMove& move = member_->shard_move();
    return move.number != 0 && move.stage != ShardMoveStage::kGathering;
  }
  // True if the learner has left for the resharding in progress.
  bool left() const { return left_for_ == member_->shard_move().number; }
  // Records that the learner has left its shards, for a resharding or for another reason.
  void Left() { left_for_ = requested() ? member_->shard_move().number : 0; }
  // Reports to the coordinator that the learner has left. REQUIRES: requested(), left().
  void Confirm();

 private:
  FleetMember* const member_;
  std::uint64_t left_for_ = 0;  // number of the resharding that the learner has left for; 0: none
};

}  // namespace troop
