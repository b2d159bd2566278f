#pragma once

#include "core/base/status.h"
#include "fleet/config/config.h"

namespace troop {

// Fills in the settings of a supervised config that depend on data and mesh, before the run starts:
// absolute paths, model.vocab_size, run.total_steps (reviews) and max_updates, fleet.learners,
// data_identity (DeriveDataSettings). Also fills the cache, so that no role has to. Other configs
// are left unchanged. Resolving a resolved config changes nothing while the data are the same.
// Errors: those of DeriveDataSettings.
Status ResolveSupervised(Config* config);

}  // namespace troop
