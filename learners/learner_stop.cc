// Implements the end of the learner role: when it makes no more updates, and its last actions.

#include "core/base/log.h"
#include "learners/learner_node.h"

namespace troop {
namespace {

// Deadline of the reply to the last heartbeat.
constexpr Duration kLastBeatMax = Seconds(3);

}  // namespace

bool LearnerNode::Finishing(Time now) {
  const FleetMember& member = *context_.member;
  if (updater_->Finished(exhausted_) || member.phase() == Phase::kDone) return true;
  if (!draining_ && !member.stop()) return false;
  return !gathering_.StopAwaits(
      now, {.is_leader = Leads(), .in_step = updater_->CanTake() || updater_->busy()});
}

// After the last update: the last checkpoint and the final weights, then the end. With an early
// stop, replay and parameter server may be unknown; they are not needed.
StepStatus LearnerNode::Finish(Time now) {
  const FleetMember& member = *context_.member;
  const bool ends = draining_ || member.stop() || member.phase() == Phase::kDone;
  if (ends) updater_->Deregister();
  if (updater_->busy() || writer_.busy() || rollback_.busy()) return Idle();
  if (!schedule_.final_done() && Leads()) {
    const bool apart = model_.place.ranks > 1 && WholeStateOf(*algorithm_).tensors.empty();
    if (!apart) {
      StartCheckpoint(now, true);
      return StepStatus::Busy();
    }
    LogWarning("stopped before the tensor-parallel state was gathered: no checkpoint is written");
    schedule_.SkipFinal();
  }
  return ends ? FinishHeartbeats(now) : FinishPublication();
}

// First the heartbeat that reports the last checkpoint, then another one with the counts of the
// last updates, which an exited coordinator does not answer. A node stopped by its own process may
// have no coordinator.
StepStatus LearnerNode::FinishHeartbeats(Time now) {
  FleetMember& member = *context_.member;
  if (!draining_ && !last_beat_until_) {
    if (!member.told()) return Idle();
    last_beat_until_ = now + kLastBeatMax;
    member.SendHeartbeatSoon();
    return StepStatus::Busy();
  }
  if (!draining_ && !member.told() && now < *last_beat_until_) return Idle(*last_beat_until_);
  result_ = schedule_.final_failure();
  return StepStatus::Done();
}

// Reports the end of the updates once the parameter server has the final weights.
StepStatus LearnerNode::FinishPublication() {
  FleetMember& member = *context_.member;
  if (publication_.connected() && Leads() && publication_.published() < Version()) {
    PublishNow();
  }
  const bool all_published = !Leads() || !updater_->publishes() || publication_.Has(Version());
  if (all_published && !member.report().finished) {
    member.report().finished = true;
    member.SendHeartbeatSoon();
    return StepStatus::Busy();
  }
  return Idle();
}

}  // namespace troop
