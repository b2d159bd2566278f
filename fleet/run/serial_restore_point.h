#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/base/status.h"
#include "core/storage/storage.h"

namespace troop {

// A point from which a serial run resumes bit-exactly: its start, or the end of a leg
// (fleet/serial/serial_run.h). The folder restore/<leg>/ in the run folder holds hard links to all
// files that the next leg starts from:
//   checkpoint/  the learner's     replay-<k>/  of each shard     incarnation  the coordinator's
//   point.json   the fields below, with a checksum; written last, which makes the point valid
struct RestorePoint {
  struct File {
    std::int64_t bytes = 0;
    std::uint32_t crc32c = 0;
  };
  std::int64_t leg = 0;       // number of the leg that starts here
  std::string checkpoint;     // path in the run folder; empty: none yet
  std::int64_t steps = 0;     // agent steps done at this point
  std::uint64_t updates = 0;  // updates made at this point
  // All files of the point, by path in its folder; set by NewestRestorePoint.
  std::map<std::string, File> files;
};

// Writes a point from the present files of the run folder (point.files is ignored), then removes
// older points. A failed write leaves no files. Reads all files once, for their checksums.
Status WriteRestorePoint(Storage* run, const RestorePoint& point);
// The newest point, with all its files verified by size and checksum.
// Errors: kNotFound; kDataLoss, with the damaged file.
Result<RestorePoint> NewestRestorePoint(Storage* run);
// Restores replay, incarnation and checkpoint from the point, and removes later checkpoints.
// Idempotent: can be repeated after an interruption.
Status GoBackTo(Storage* run, const RestorePoint& point);
// Removes all points, for a run that continues in a mode without them.
Status RemoveRestorePoints(Storage* run);

}  // namespace troop
