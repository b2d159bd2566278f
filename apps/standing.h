#pragma once

#include <string>

#include "core/status.h"
#include "core/storage.h"

namespace troop {

// Where the run in a folder stands.
enum class Standing {
  kNew,       // nothing to go on from
  kHalf,      // it can go on
  kFinished,  // it is done
};
// It has a whole checkpoint, or a restore point.
bool CanGoOn(Storage* run);
// The command that takes up a run that was stopped, killed or failed, as part of a sentence:
// "go on with: troop resume RUN", or how to begin it again where it has no checkpoint. `path`: as
// the user is to name the run's folder.
std::string HowToGoOn(Storage* run, const std::string& path);
// Says on standard error which snapshots of parameter shards are damaged, before any role starts.
// No error: an older one serves, or the newest checkpoint's weights.
void WarnOfDamagedShards(Storage* run);
// `path`: of the run's folder, which need not be there. Errors: those of the storage.
Result<Standing> StandingOf(const std::string& path);

}  // namespace troop
