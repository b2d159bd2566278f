#pragma once

#include "core/base/status.h"
#include "fleet/config/config.h"

namespace troop {

// Fills in the settings of a supervised or offline config that depend on data, mesh and working
// directory, before the run starts: of an offline run run.total_steps; of a supervised run mesh.dp
// and fleet.learners, absolute paths, and those of DataSettings (learners/supervised/dataset.h).
// Also fills the cache of tokenized reviews, so that no role has to. learner.demonstrations becomes
// an absolute path. Other configs are left unchanged. Resolving a resolved config changes nothing
// while the data are the same. Errors: those of DeriveDataSettings; kInvalidArgument: an invalid
// path.
Status ResolveSupervised(Config* config);

}  // namespace troop
