// Implements sequences of layers.
#include "nn/policy_library/policy_chain.h"

#include <algorithm>
#include <utility>

#include "nn/policy_library/troop_policy.h"

namespace troop {

// The layer's input must be the output of the layer before it.
void PolicyChain::Add(const nlohmann::json& layer, const PolicyContext& context) {
  if (!layer.is_object())
    throw PolicyError(TROOP_POLICY_DATA_LOSS, "a layer of the description is not an object");
  const PolicyLayerSource source{layer, context, PolicyShape(layer, "in"),
                                 PolicyShape(layer, "out")};
  if (source.in != shape_)
    throw PolicyError(TROOP_POLICY_DATA_LOSS,
                      "a layer's input is not the output of the layer before");
  operations_.push_back(MakePolicyOperation(source));
  shape_ = source.out;
  width_ = std::max(width_, PolicyElements(shape_) + operations_.back()->scratch());
  state_ += operations_.back()->state();
}

// Each layer takes its own part of the states. The result is in the buffer that the last one wrote.
float* PolicyChain::Run(PolicyIsa isa, std::int64_t rows, const float* in, Buffers buffers,
                        PolicyStates states) const {
  float *to = buffers.first, *next = buffers.second;
  for (const auto& operation : operations_) {
    operation->Run(isa, rows, in, to, states);
    states.first += operation->state();
    in = to;
    std::swap(to, next);
  }
  return next;
}

}  // namespace troop
