#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "fleet/config/config.h"

namespace troop {

// Overrides that raise the budget of a resumed run (agent steps, updates, epochs) to that of
// `asked` where it exceeds `was`, the config in the run folder. Empty if it does not.
std::vector<std::string> LargerBudget(const Config& asked, const Config& was);

// True if the run in `path` is finished and the budget of `config` is spent too, so that a resume
// would do nothing. Errors: those of ReadRunConfig and ResolveSupervised.
Result<bool> IsSpent(const std::string& path, const Config& config);

// Message of `resume` and `train --continue` for a run with a spent budget.
std::string SpentNotice(const Config& config);

}  // namespace troop
