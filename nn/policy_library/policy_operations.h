#pragma once

#include <cstdint>
#include <memory>

#include "nn/policy_library/policy_kernels.h"
#include "nn/policy_library/policy_layer_reader.h"

namespace troop {

// Recurrent states of the rows of a call: those of row r begin at first + r * step.
struct PolicyStates {
  float* first = nullptr;
  std::int64_t step = 0;
};

// One prepared layer of a policy.
class PolicyOperation {
 public:
  virtual ~PolicyOperation() = default;
  // Elements per row that Run may use after the rows of `out`.
  virtual std::int64_t scratch() const { return 0; }
  // Elements of the recurrent state of a row.
  virtual std::int64_t state() const { return 0; }
  // Computes out [rows, out elements] from in [rows, in elements]. states: read and replaced; only
  // an operation with a state uses them.
  virtual void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out,
                   const PolicyStates& states) const = 0;
};

// Errors are thrown as PolicyError: an unknown kind, a missing member or tensor, shapes that do not
// fit the kind.
std::unique_ptr<PolicyOperation> MakePolicyOperation(const PolicyLayerSource& source);

}  // namespace troop
