// Implements the phases of a run and its progress towards the budget.
#include "fleet/coordinator/run_lifecycle.h"

#include <algorithm>

#include "core/base/log.h"
#include "fleet/run/run_state.h"
#include "fleet/run/task_info.h"

namespace troop {

RunLifecycle::RunLifecycle(const Config* config, std::int64_t resume_steps)
    : config_(config),
      leases_(std::int64_t(config->run.total_steps), resume_steps),
      reviews_done_(resume_steps) {}

void RunLifecycle::AdvanceTo(Phase next) {
  if (next <= phase_) return;
  phase_ = next;
  LogInfo("the run is {}: {} {} done", PhaseName(phase_), steps_done(), StepsName(*config_));
}

// Draining starts when the budget is done or the run is solved or stalled; evaluating when the
// learner has written its last checkpoint; done after the final evaluation.
void RunLifecycle::Advance(const Milestones& reached) {
  const Config& c = *config_;
  const EvaluationReport* const last = reached.last_evaluation;
  const bool solved = c.evaluator.stop_at_return != 0 && last != nullptr &&
                      last->return_mean >= c.evaluator.stop_at_return;
  const std::int64_t patience = c.evaluator.early_stopping_patience;
  const bool stalled = patience > 0 && reached.evaluations_since_best >= patience;
  if (stalled && phase_ == Phase::kRunning) {
    LogInfo(
        "early stopping: {} evaluations without a better score than the best one "
        "(evaluator.early_stopping_patience)",
        reached.evaluations_since_best);
  }
  if (steps_done() >= std::int64_t(c.run.total_steps) || solved || stalled)
    AdvanceTo(Phase::kDraining);
  if (reached.learner_finished) AdvanceTo(Phase::kEvaluating);
  if (phase_ == Phase::kEvaluating) {
    const bool judged = last != nullptr && last->final;
    if (judged || !c.evaluator.enabled || FinalEpisodes(c) == 0) AdvanceTo(Phase::kDone);
  }
}

// A restarted learner may report less than its predecessor; progress never decreases.
void RunLifecycle::RecordSteps(Role role, std::int64_t done, StepLease* lease) {
  leases_.Report(lease, done);
  if (role != Role::kLearner || HasActors(*config_)) return;
  reviews_done_ = std::clamp(done, reviews_done_, std::int64_t(config_->run.total_steps));
}

void RunLifecycle::FillReply(std::int64_t wanted, StepLease* lease, HeartbeatReply* reply) {
  if (phase_ == Phase::kRunning) leases_.Grant(lease, wanted);
  reply->phase = phase_;
  reply->stop = stop_;
  reply->steps_granted = lease->granted;
  reply->steps_over = phase_ > Phase::kRunning || leases_.exhausted();
  reply->steps_total_done = steps_done();
}

// A run that drains needs no experience, so a lost actor is not replaced or reported.
bool RunLifecycle::Needs(Role role) const {
  if (over()) return false;
  return role != Role::kActor || phase_ == Phase::kRunning;
}

std::int64_t RunLifecycle::steps_done() const {
  return HasActors(*config_) ? leases_.done() : reviews_done_;
}

}  // namespace troop
