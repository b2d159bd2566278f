#pragma once

#include <memory>
#include <string>

#include "nn/policy_library/policy_layer_reader.h"
#include "nn/policy_library/policy_operations.h"

namespace troop {

// Makes an operation with a recurrent state: lstm, gru. nullptr: another kind. Throws PolicyError:
// members, shapes or tensors do not fit the kind.
std::unique_ptr<PolicyOperation> MakePolicyRecurrentOperation(const std::string& kind,
                                                              const PolicyLayerReader& layer);

}  // namespace troop
