#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/status.h"
#include "core/storage.h"

namespace troop {

// Where a serial run can go on to the byte: its beginning, or the end of a leg (apps/serial_run.h).
// restore/<leg>/ of the run's folder has second names for all that the next leg begins with:
//   checkpoint/  the learner's     replay-<k>/  of each shard     incarnation  the coordinator's
//   point.json   what is below, with its checksum; written last: it makes the rest valid
struct RestorePoint {
  struct File {
    std::int64_t bytes = 0;
    std::uint32_t crc32c = 0;
  };
  std::int64_t leg = 0;       // that begins here
  std::string checkpoint;     // its path in the run's folder; empty: none yet
  std::int64_t steps = 0;     // agent steps behind it
  std::uint64_t updates = 0;  // likewise
  // All that belongs to it, by path in its folder: of a point that was read.
  std::map<std::string, File> files;
};

// What the run's folder holds now (point.files is not looked at). The points before it go. One that
// fails leaves nothing behind. Reads all files once, for their checksums.
Status WriteRestorePoint(Storage* run, const RestorePoint& point);
// The newest one. All its files were read, and are as they were written.
// Errors: kNotFound; kDataLoss with the file.
Result<RestorePoint> NewestRestorePoint(Storage* run);
// Replay and incarnation become what they were, the checkpoint is there, and none behind it: from
// the files of the point alone. Can be repeated: what cuts it short costs nothing but this try.
Status GoBackTo(Storage* run, const RestorePoint& point);
// What goes on in another way has no use for them.
Status RemoveRestorePoints(Storage* run);

}  // namespace troop
