#pragma once

#include <string>
#include <vector>

#include "core/config.h"
#include "core/status.h"

namespace troop {

// Overrides that give a continued run the budget of `asked` (agent steps, updates, epochs) where it
// is larger than that of `was`, the config in the run's folder. Empty where it is not.
std::vector<std::string> LargerBudget(const Config& asked, const Config& was);

// A finished run whose config still has the same budget, or one that is spent too: a resume with
// `config` would change nothing. `path`: the run's folder. False of a run that is not finished.
// Errors: those of ReadRunConfig and of ResolveSupervised.
Result<bool> IsSpent(const std::string& path, const Config& config);

// What `resume` and `train --continue` print of such a run.
std::string SpentNotice(const Config& config);

}  // namespace troop
