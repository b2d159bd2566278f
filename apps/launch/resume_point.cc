// The start of a resumed run: its restore point, or its newest checkpoint.
#include "apps/launch/resume_point.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "fleet/launcher/resource_estimate.h"
#include "fleet/run/config_change.h"
#include "fleet/run/run_status.h"
#include "fleet/run/task_info.h"
#include "fleet/serial/serial_run.h"
#include "learners/checkpoint.h"

namespace troop {
namespace {

// Rewinds a serial run to its last restore point, so that it repeats exactly what an
// uninterrupted run would do; later updates are lost. Errors: kNotFound without a restore point.
Result<RestorePoint> FindRestorePoint(const RunFolder& folder) {
  Storage* const run = folder.storage.get();
  if (!HasRestorePoints(folder.config)) return NotFound("the run has no restore points");
  TROOP_ASSIGN_OR_RETURN(const RestorePoint point, NewestRestorePoint(run));
  TROOP_RETURN_IF_ERROR(GoBackTo(run, point));
  const bool same = point.checkpoint.empty() || SameConfig(run, folder.path, point.checkpoint);
  fmt::print("resuming {}{}, from {}: {} {}, {} updates\n", folder.path, same ? " exactly" : "",
             point.checkpoint.empty() ? "its beginning" : point.checkpoint, point.steps,
             StepsName(folder.config), point.updates);
  return point;
}

// The newest checkpoint as a start, for a run without a restore point. Errors: kNotFound, with
// a hint for the user.
Result<RestorePoint> NewestAsPoint(const RunFolder& folder) {
  Storage* const run = folder.storage.get();
  Result<std::string> newest = NewestCheckpoint(run);
  if (newest.status().code() == Code::kNotFound) {
    return NotFound("{}: {}", folder.path, ResumeHint(run, folder.path));
  }
  TROOP_ASSIGN_OR_RETURN(const std::string path, std::move(newest));
  TROOP_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpoint(run, path));
  SameConfig(run, folder.path, path);
  fmt::print("resuming {} from {}: {} {}, {} updates\n", folder.path, path, state.steps,
             StepsName(folder.config), state.updates);
  return RestorePoint{.checkpoint = path, .steps = state.steps, .updates = state.updates};
}

}  // namespace

// The checkpoint of either kind of point must fit the config, which the user may have edited.
Result<RestorePoint> FindResumePoint(const RunFolder& folder) {
  Storage* const run = folder.storage.get();
  Result<RestorePoint> found = FindRestorePoint(folder);
  if (found.status().code() == Code::kDataLoss) {
    fmt::print(stderr, "troop: not resumed exactly: {}\n", found.status().message());
  }
  const bool none = !found.ok() && (found.status().code() == Code::kNotFound ||
                                    found.status().code() == Code::kDataLoss);
  if (none) found = NewestAsPoint(folder);
  TROOP_ASSIGN_OR_RETURN(RestorePoint point, std::move(found));
  if (folder.config.learner.sync == LearnerSync::kParamServer) WarnOfDamagedShards(run);
  if (point.checkpoint.empty()) return point;
  TROOP_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpoint(run, point.checkpoint));
  TROOP_RETURN_IF_ERROR(CheckResume(folder.config, state, folder.path + "/" + point.checkpoint));
  return point;
}

}  // namespace troop
