// Implements the report of a learner's pause during a resharding.
#include "learners/sync/reshard_pause.h"

#include <utility>

namespace troop {

// A heartbeat is sent early only once: later ones repeat the report.
void ReshardPause::Confirm() {
  const std::uint64_t move = member_->shard_move().number;
  if (std::exchange(member_->report().shard_move, move) != move) member_->SendHeartbeatSoon();
}

}  // namespace troop
