#pragma once

#include <string>

#include "core/base/status.h"
#include "core/storage/storage.h"

namespace troop {

// Progress of the run in a folder.
enum class RunStatus {
  kNew,        // no run, or nothing to resume from
  kResumable,  // it can be resumed
  kFinished,   // it is done
};
// True if the run has a complete checkpoint or a restore point.
bool CanResume(Storage* run);
// The command that continues a stopped, killed or failed run, as part of a sentence: "resume with:
// troop resume RUN", or how to restart it if it has no checkpoint. `path`: the run folder as the
// user should write it.
std::string ResumeHint(Storage* run, const std::string& path);
// Prints damaged parameter-shard snapshots to standard error, before any role starts. They are not
// an error: the shard loads an older snapshot, or the newest checkpoint's weights.
void WarnOfDamagedShards(Storage* run);
// Progress of the run at `path`, which need not exist. Errors: those of the storage.
Result<RunStatus> GetRunStatus(const std::string& path);

}  // namespace troop
