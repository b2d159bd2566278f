#pragma once

#include <memory>

#include "apps/restore_point.h"
#include "apps/serial_fleet.h"

namespace troop {

// A run in one thread, in legs: each checkpoint.every_updates the fleet comes to its end, learner
// and replay write all that they are, and a new fleet begins from the files alone. So nothing else
// enters a leg, and a run that was stopped or killed anywhere goes on from the end of its last
// whole leg to the same bytes as one that never was (docs/design/determinism.md).
// checkpoint.every_updates = 0: one leg, no restore points. Owner: one thread; blocks on the disk.
class SerialRun {
 public:
  // Changes nothing on the disk before the first Round but what the fleet's roles do at once.
  // `from`: in the run's folder; its beginning, or the point that GoBackTo was told.
  static Result<std::unique_ptr<SerialRun>> Make(const Config& config, Storage* run,
                                                 const RestorePoint& from);
  // False when the run is over, has failed, or was drained.
  bool Round();
  // Ends the run early, with a checkpoint.
  void Drain();
  Status result() const { return result_; }
  RunView View() const;  // of all legs since Make
  std::vector<RoleView> roles() const { return fleet_->coordinator().roles(); }

 private:
  SerialRun() = default;
  Status Begin();
  void Keep();
  bool LegIsOver() const;
  bool NextLeg();

  Config config_;
  Storage* run_ = nullptr;
  RestorePoint from_;  // where this leg began
  bool in_legs_ = false;
  std::unique_ptr<SerialFleet> fleet_;
  RunView past_;             // of the legs before this one: counters and evaluations
  std::int64_t rounds_ = 0;  // of this leg
  bool ending_ = false;      // this leg has come to its end
  bool draining_ = false;
  Status result_;
};

// Whether a run of this config has restore points.
bool HasRestorePoints(const Config& config);

}  // namespace troop
