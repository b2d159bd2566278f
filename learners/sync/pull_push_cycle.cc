// Implements the decisions of a learner that pulls from and pushes to parameter shards.
#include "learners/sync/pull_push_cycle.h"

#include <utility>

namespace troop {

// A pause comes first. A batch starts from the local weights, if the replica needs no pull, or with
// a pull.
PullPushCycle::Action PullPushCycle::Next(Time now, const Situation& situation) {
  if (situation.pause_requested) {
    rests_since_.reset();
    // It leaves even if it never joined: the shards may wait for its confirmation.
    return situation.has_paused ? Action::kConfirmPause : Leave(situation);
  }
  if (!situation.has_batch) return NextWithoutBatch(now, situation);
  rests_since_.reset();
  return takes_part_ && !situation.wants_pull ? Action::kCompute : Action::kPull;
}

// After a while it leaves, so that the shards do not wait for it.
PullPushCycle::Action PullPushCycle::NextWithoutBatch(Time now, const Situation& situation) {
  const bool owes_pull = !takes_part_ && OwesFinalPull();
  if (situation.has_jobs || (!takes_part_ && !owes_pull) || deregistered_) {
    rests_since_.reset();
    return Action::kWait;
  }
  if (owes_pull) return Action::kPull;
  if (!rests_since_) rests_since_ = now;
  const bool ends = exhausted_ || situation.complete;
  if (!ends && now - *rests_since_ < options_.patience) return Action::kWait;
  return Leave(situation);
}

// Before leaving, local steps are pushed if there are no more batches, or if the pull on return
// would overwrite them.
PullPushCycle::Action PullPushCycle::Leave(const Situation& situation) const {
  if ((exhausted_ || options_.pull_overwrites) && situation.wants_flush) return Action::kFlush;
  if (situation.has_open_pushes) return Action::kWait;
  // The leader pulls once more: its last push is part of the final checkpoint.
  const bool pulls = exhausted_ && options_.is_leader && unseen_ && !situation.pause_requested;
  return pulls ? Action::kPull : Action::kLeave;
}

void PullPushCycle::PullRequested() {
  rests_since_.reset();
  takes_part_ = true;
  final_pulled_ = false;
  state_ = State::kPulling;
}

void PullPushCycle::PullTaken() {
  unseen_ = false;
  state_ = State::kRest;
}

// While flushing, no batch is in progress; a new job has not begun.
bool PullPushCycle::Pushed() {
  unseen_ = true;
  return std::exchange(state_, State::kRest) == State::kPushing;
}

void PullPushCycle::LeaveRequested() {
  rests_since_.reset();
  state_ = State::kLeaving;
}

void PullPushCycle::Left() {
  takes_part_ = false;
  final_pulled_ = exhausted_;
  state_ = State::kRest;
}

bool PullPushCycle::Abandon() {
  const bool dropped = state_ == State::kPushing || state_ == State::kFlushing;
  if (state_ != State::kLeaving) state_ = State::kRest;
  return dropped;
}

}  // namespace troop
