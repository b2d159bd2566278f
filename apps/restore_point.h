#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"
#include "core/storage.h"

namespace troop {

// Where a serial run can go on to the byte: its beginning, or the end of a leg (apps/serial_run.h).
// restore/<leg>/ of the run's folder has second names for all that the next leg begins with:
//   checkpoint/  the learner's     replay-<k>/  of each shard     incarnation  the coordinator's
//   point.json   the numbers below; written last: it makes the rest valid
struct RestorePoint {
  std::int64_t leg = 0;       // that begins here
  std::string checkpoint;     // its path in the run's folder; empty: none yet
  std::int64_t steps = 0;     // agent steps behind it
  std::uint64_t updates = 0;  // likewise
};

// What the run's folder holds now. The points before it go. One that fails leaves nothing behind.
Status WriteRestorePoint(Storage* run, const RestorePoint& point);
// The newest whole one; its checkpoint was read. Errors: kNotFound; kDataLoss with the file.
Result<RestorePoint> NewestRestorePoint(Storage* run);
// Replay and incarnation become what they were, the checkpoint is there, and none behind it. Can be
// repeated: what cuts it short costs nothing but this try.
Status GoBackTo(Storage* run, const RestorePoint& point);
// What goes on in another way has no use for them.
Status RemoveRestorePoints(Storage* run);

}  // namespace troop
