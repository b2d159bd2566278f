// Serial runs in legs: drains the fleet at each restore point and starts the next one from files.
#include "fleet/serial/serial_run.h"

#include <utility>

#include "core/base/log.h"
#include "learners/checkpoint.h"

namespace troop {
namespace {

// Each check builds a view of all metrics, so it is not made in every round.
constexpr int kLookEvery = 16;  // rounds

}  // namespace

bool HasRestorePoints(const Config& config) {
  // Parameter shards write their own snapshots, which restore points do not cover.
  const bool shards = config.learner.sync == LearnerSync::kParamServer;
  return config.fleet.mode == FleetMode::kSerial && config.checkpoint.every_updates > 0 && !shards;
}

Result<std::unique_ptr<SerialRun>> SerialRun::Make(const Config& config, Storage* run,
                                                   const RestorePoint& from) {
  std::unique_ptr<SerialRun> made(new SerialRun);
  made->config_ = config;
  made->run_ = run;
  made->from_ = from;
  made->past_.steps_at_start = from.steps;
  made->past_.updates_at_start = from.updates;
  made->in_legs_ = HasRestorePoints(config);
  if (made->in_legs_) made->config_.replay.persist = true;  // a leg begins from files alone
  TROOP_RETURN_IF_ERROR(made->Begin());
  return made;
}

Status SerialRun::Begin() {
  ending_ = false;
  rounds_ = 0;
  TROOP_ASSIGN_OR_RETURN(
      fleet_, SerialFleet::Make(config_, run_, from_.checkpoint, from_.steps, from_.updates));
  return Status::Ok();
}

// Writes the restore point of the start in the first round. A leg is complete when its fleet has
// drained without failure before the end of the run.
bool SerialRun::Round() {
  if (rounds_ == 0 && in_legs_ && from_.leg == 0) Keep();
  if (fleet_->Round()) {
    if (++rounds_ % kLookEvery == 0 && in_legs_ && !ending_ && !draining_ && LegIsOver()) {
      ending_ = true;
      fleet_->Drain();
    }
    return true;
  }
  result_ = fleet_->result();
  const bool whole = ending_ && result_.ok() && fleet_->coordinator().phase() != Phase::kDone;
  return whole && NextLeg();
}

// Counted from the start of the leg, so that all legs have the same length.
bool SerialRun::LegIsOver() const {
  const Coordinator& coordinator = fleet_->coordinator();
  if (coordinator.phase() != Phase::kRunning) return false;
  const double done = coordinator.View().metrics.at("learner/updates").value;
  return done >= double(from_.updates) + double(config_.checkpoint.every_updates);
}

// Writes a restore point. After a failed write the previous point stays valid.
void SerialRun::Keep() {
  const Status written = WriteRestorePoint(run_, from_);
  if (!written.ok()) LogError("no restore point: {}", written.message());
}

// Makes the end of this leg the next start: corrects the checkpoint's step count, writes the
// restore point, then replaces the fleet.
bool SerialRun::NextLeg() {
  RunView view = View();
  from_ = {.leg = from_.leg + 1,
           .checkpoint = view.checkpoint,
           .steps = view.steps,
           .updates = view.checkpoint_updates};
  result_ = CorrectCheckpointSteps(run_, from_.checkpoint, from_.steps);
  if (result_.ok()) Keep();
  if (!result_.ok() || draining_) return false;
  past_ = std::move(view);
  past_.metrics = CountersOf(past_.metrics);
  past_.metrics.erase("learner/updates");  // the next coordinator resumes this counter
  fleet_.reset();                          // releases its file locks
  result_ = Begin();
  return result_.ok();
}

// No further leg begins after this.
void SerialRun::Drain() {
  draining_ = true;
  fleet_->Drain();
}

// Adds the totals of earlier legs to those of the current fleet.
RunView SerialRun::View() const {
  if (!fleet_) return past_;
  RunView view = fleet_->coordinator().View();
  view.steps_at_start = past_.steps_at_start;
  view.updates_at_start = past_.updates_at_start;
  view.metrics = MergeMetrics({past_.metrics, view.metrics});
  view.evaluations.insert(view.evaluations.begin(), past_.evaluations.begin(),
                          past_.evaluations.end());
  return view;
}

}  // namespace troop
