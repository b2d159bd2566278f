// Implements the decision when a learner makes no more updates.

#include "learners/learner_node.h"

namespace troop {

// True if only the agent steps limit the run: neither a replay ratio nor max_updates does.
bool LearnerNode::EndsWithTheSteps() const {
  const Config& c = context_.config;
  return !supervised() && c.replay.samples_per_insert <= 0 && c.run.max_updates == 0;
}

bool LearnerNode::Finishing(Time now) {
  const FleetMember& member = *context_.member;
  if (updater_->Finished(exhausted_) || member.phase() == Phase::kDone) return true;
  return (draining_ || member.stop()) && !AwaitsState(now);
}

// With tensor parallelism the next update gathers the state. A stop's checkpoint waits for it if
// the other ranks are present, for at most half of the drain time.
bool LearnerNode::AwaitsState(Time now) {
  if (tensor_.ranks == 1 || replicated()) return false;
  if (!stopped_) stopped_ = now;
  state_wanted_ = updater_->is_leader() && !state_since_stop_;
  const bool in_step = updater_->CanTake() || updater_->busy();
  return in_step && !state_since_stop_ &&
         now - *stopped_ < Seconds(context_.config.fleet.shutdown_grace_s / 2);
}

}  // namespace troop
