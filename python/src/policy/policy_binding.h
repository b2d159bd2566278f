#pragma once

#include <pybind11/pybind11.h>

namespace troop {

// Adds the classes Policy and PolicyState to the extension module: trained policies, computed by
// libtroop_policy (nn/policy_library/troop_policy.h). Policy.act is the hot path: it reads
// contiguous observations in place and allocates nothing but its result. All calls hold the
// interpreter's lock, which also protects the buffers.
void BindPolicy(pybind11::module_& module);

}  // namespace troop
