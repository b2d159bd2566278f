#pragma once

#include <memory>

#include "fleet/run/serial_restore_point.h"
#include "fleet/serial/serial_fleet.h"

namespace troop {

// A serial run, divided into legs. After each checkpoint.every_updates updates the fleet drains,
// learner and replay write their complete state, and a new fleet starts from those files alone.
// Hence a run that was stopped or killed at any point resumes from its last complete leg with
// bit-equal results (docs/design/determinism.md). checkpoint.every_updates = 0: one leg, no restore
// points. Owner: one thread; blocks on the disk.
class SerialRun {
 public:
  // Makes the first fleet. Writes no files before the first Round, except those that roles open.
  // `from`: the start of the run, or the point that was passed to GoBackTo.
  static Result<std::unique_ptr<SerialRun>> Make(const Config& config, Storage* run,
                                                 const RestorePoint& from);
  // False when the run is over, has failed, or was drained.
  bool Round();
  // Ends the run early, with a checkpoint.
  void Drain();
  Status result() const { return result_; }
  const EnvSpec& env() const { return fleet_->coordinator().env(); }  // of the current leg
  RunView View() const;  // totals of all legs since Make
  std::vector<RoleView> roles() const { return fleet_->coordinator().roles(); }

 private:
  SerialRun() = default;
  Status Begin();
  void Keep();
  bool LegIsOver() const;
  bool NextLeg();

  Config config_;
  Storage* run_ = nullptr;
  RestorePoint from_;  // start of this leg
  bool in_legs_ = false;
  std::unique_ptr<SerialFleet> fleet_;
  RunView past_;             // counters and evaluations of the earlier legs
  std::int64_t rounds_ = 0;  // of this leg
  bool ending_ = false;      // this leg is draining
  bool draining_ = false;
  Status result_;
};

// True if a run of this config writes restore points.
bool HasRestorePoints(const Config& config);

}  // namespace troop
