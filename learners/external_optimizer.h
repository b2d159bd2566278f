#pragma once

#include <cstdint>
#include <span>

#include "nn/optimizer.h"

namespace troop {

// Updates that the caller applies itself, in place of Algorithm::ApplyGradient (parameter shards,
// Hogwild): an optional interface of an Algorithm (Algorithm::external_optimizer). Owner thread:
// the algorithm's.
class ExternalOptimizer {
 public:
  virtual ~ExternalOptimizer() = default;
  // Takes [P] as the weights after `updates` updates. The target network follows every
  // learner.target_update_every_updates of them.
  virtual void ReplaceWeights(std::uint64_t updates, std::span<const float> value) = 0;
  // The optimizer of Algorithm::value(), with its state.
  virtual Optimizer& optimizer() = 0;
  // Factor that the clip applies to a gradient of that norm.
  virtual double ClipScale(double norm) const = 0;
  // Clips `gradient` [P], whose norm is `norm`. By default all of it is scaled.
  virtual void Clip(double norm, std::span<float> gradient) const {
    const auto scale = float(ClipScale(norm));
    if (scale == 1) return;
    for (float& g : gradient) g *= scale;
  }
};

}  // namespace troop
