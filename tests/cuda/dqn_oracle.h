#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "learners/gpu/cuda/dqn_step.h"
#include "tests/learners/value_reference.h"

// Small Q-networks and their reference updates, for parity cases of updates on a GPU.
namespace troop::cuda {

// Images through two convolutions, or vectors through linear layers; heads of all three kinds.
enum class DqnHead { kPlain, kDueling, kDuelingHidden };
QNetworkSpec DqnSpecOf(bool pictures, DqnHead head, std::int64_t numbers);

// Reference: whole updates in f64.
class DqnOracle {
 public:
  using Numbers = std::vector<double>;
  struct Batch {
    std::vector<float> observation;  // [2 B, in], scaled
    std::vector<std::int32_t> action, length;
    std::vector<float> reward, discount, weight;
  };
  struct Outcome {
    double loss = 0, norm = 0;
    Numbers priority;
  };

  DqnOracle(const DqnStepOptions& options, const std::vector<float>& value);
  Outcome Update(const Batch& batch, double rate);
  const Numbers& value() const { return value_; }
  const Numbers& target() const { return target_; }

 private:
  // Activations of the layers of a forward pass.
  using Kept = std::map<const QLayer*, Numbers>;
  Numbers Layer(const Numbers& weights, const QLayer& layer, const Numbers& x) const;
  Numbers Forward(const Numbers& weights, const Numbers& observation, Kept* out) const;
  // Index of the value of an action, for at = row · K + k.
  std::size_t Place(std::int64_t at, std::int64_t action) const;
  // From dz of a layer: the gradient of its parameters, and dx.
  Numbers LayerBackward(const QLayer& layer, const Numbers& x, const Numbers& dz);
  static void Multiply(const QLayer& layer, const Numbers& y, Numbers* dy);
  void Backward(const Numbers& observation, const Numbers& dq, Kept* out);
  void Step(double scale, double rate);

  const DqnStepOptions o_;
  const ValueReference values_;
  Numbers value_, target_, gradient_, m_, v_;
  int steps_ = 0;
};

}  // namespace troop::cuda
