#pragma once

#include <memory>

#include "nn/policy_library/policy_layer_reader.h"
#include "nn/policy_library/policy_program.h"

namespace troop {

// Errors are thrown as PolicyError: an unknown kind, a missing member or tensor, shapes that do not
// fit the kind.
std::unique_ptr<PolicyOperation> MakePolicyOperation(const PolicyLayerSource& source);

}  // namespace troop
