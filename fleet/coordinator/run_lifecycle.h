#pragma once

#include <cstdint>

#include "fleet/config/config.h"
#include "fleet/coordinator/step_leases.h"
#include "net/control/evaluation_report.h"
#include "net/control/heartbeat_request.h"
#include "net/control/phase.h"
#include "net/message.h"

namespace troop {

// The lifecycle of a run: its progress towards the budget, its phase, and a request to stop.
//
// Invariants:
// - The phase never returns to an earlier one, and a stop request is never withdrawn.
// - The run leaves kRunning when the budget is done, the run is solved or does not improve, or the
//   learner has finished; it reaches kEvaluating when the learner has finished, and kDone after the
//   final evaluation, if there is one.
// - Progress never decreases.
// Owner: the coordinator. O(1) per call.
class RunLifecycle {
 public:
  // `config`: borrowed. `resume_steps`: steps done at the checkpoint that the run resumes from.
  RunLifecycle(const Config* config, std::int64_t resume_steps);

  // Ends the run early: roles write a checkpoint and leave.
  void Stop() { stop_ = true; }
  // The events that end a phase.
  struct Milestones {
    const EvaluationReport* last_evaluation = nullptr;  // null: none yet
    std::int64_t evaluations_since_best = 0;            // RunResults
    bool learner_finished = false;  // the first learner has written its last checkpoint
  };
  // Advances the phase as far as progress and milestones allow, with a log line for each.
  void Advance(const Milestones& reached);

  // Takes over the steps of a heartbeat: the steps of an actor's lease; without actors the
  // reviews over all learners, as a learner reports them.
  void RecordSteps(Role role, std::int64_t done, StepLease* lease);
  // Leases up to `wanted` steps in total while the run is in kRunning, and fills phase, stop and
  // steps of the reply.
  void FillReply(std::int64_t wanted, StepLease* lease, HeartbeatReply* reply);
  // The leases, for members that leave or are replaced.
  StepLeases& leases() { return leases_; }

  Phase phase() const { return phase_; }
  bool stopping() const { return stop_; }
  // True before the run drains or stops. Only then may its roles be scaled.
  bool running() const { return phase_ == Phase::kRunning && !stop_; }
  // True when the run needs no role any more.
  bool over() const { return phase_ == Phase::kDone || stop_; }
  // True while the run needs processes of this role: a process that leaves must be restarted.
  bool Needs(Role role) const;
  // Progress of the run, in agent steps, or in reviews or samples without actors.
  std::int64_t steps_done() const;

 private:
  void AdvanceTo(Phase next);

  const Config* const config_;
  StepLeases leases_;
  std::int64_t reviews_done_;  // without actors: examples over all learners
  Phase phase_ = Phase::kRunning;
  bool stop_ = false;
};

}  // namespace troop
