#pragma once

#include <memory>

#include "core/base/status.h"
#include "fleet/config/config.h"
#include "net/message.h"

namespace troop {

// True if the role reads a data set before its node can be made: learners and the evaluator of a
// supervised run.
bool ReadsData(const Config& config, Role role);
// Reads it. While the result is held, the role's node finds the data in memory (SharedData). May
// take minutes. Errors: those of LoadReviewData, LoadImageData or LoadLinearData.
Result<std::shared_ptr<const void>> ReadRoleData(const Config& config);

}  // namespace troop
