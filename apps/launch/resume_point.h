#pragma once

#include "core/base/status.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/serial_restore_point.h"

namespace troop {

// Selects the point from which a run resumes: the restore point of a serial run if it has an intact
// one, to which the folder is then rewound, else the newest checkpoint. Prints the choice; a
// damaged restore point and damaged parameter shards are reported, since the resume is then not
// exact. Errors: kNotFound: there is neither, with a hint for the user; kInvalidArgument: the
// config does not fit the checkpoint; kDataLoss.
Result<RestorePoint> FindResumePoint(const RunFolder& folder);

}  // namespace troop
