#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/tensor.h"
#include "nn/module.h"
#include "nn/optimizer_config.h"

namespace troop {

// Applies gradients to the flat vector of P parameters. Owns its state ([P] per slot) and a step
// count. Owner: one thread. Deterministic.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Makes one update of `value`: value -= f(gradient * gradient_scale), where f is the optimizer's
  // rule and gradient_scale a common factor, such as that of norm clipping. gradient, value: [P].
  void Step(std::span<const float> gradient, float gradient_scale, float learning_rate,
            std::span<float> value);
  // A range of consecutive parameters with its own learning rate. REQUIRES: the counts sum to P.
  struct Group {
    std::int64_t count = 0;
    float learning_rate = 0;
    bool decays = true;  // false: no weight decay, as for biases and norms
    // Changes only at each `every`-th step, with bias corrections for these steps. The others
    // change neither its parameters nor its part of the state.
    std::int64_t every = 1;
  };
  // Like Step, with one learning rate per group.
  void StepGroups(std::span<const float> gradient, float gradient_scale,
                  std::span<const Group> groups, std::span<float> value);
  // True if a group with that `every` changes at the next step.
  bool ChangesNext(std::int64_t every) const { return (steps() + 1) % every == 0; }
  // Like StepGroups, with the gradient split into consecutive parts; the result has the same bytes.
  // REQUIRES: the parts have P elements in total.
  void StepParts(std::span<const std::span<const float>> parts, float gradient_scale,
                 std::span<const Group> groups, std::span<float> value);
  // Optimizer state, [P] each: "m", "v", …
  struct Slot {
    std::string name;
    std::span<float> values;
  };
  virtual std::vector<Slot> slots() = 0;  // for checkpoints
  virtual std::int64_t steps() const = 0;
  virtual void set_steps(std::int64_t steps) = 0;

 private:
  virtual std::int64_t parameters() const = 0;
  // Updates a group, or a part of it, whose first element is `first` (`value` points to it). Called
  // several times per step, after set_steps has counted the step.
  virtual void StepRange(std::int64_t first, std::span<const float> gradient, float gradient_scale,
                         const Group& group, float* value) = 0;
};

// Divides a model's parameters into groups with the same learning rate: alternating runs of
// consecutive tensors with weight decay (ParamSpec::decays) and without. Padding belongs to the
// tensor before it.
std::vector<Optimizer::Group> DecayGroups(const Module& module, float learning_rate);

// Creates the optimizer that optimizer.type names:
//   adam: Adam / AdamW (Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019).
//   rmsprop: RMSProp, centered or not (Graves 2013, eq. 38-42), with ε inside the root as in DQN:
//   sqrt(v - m² + ε).
//   sgd: SGD with or without momentum, as in PyTorch.
//   adagrad: AdaGrad (Duchi et al. 2011), as in PyTorch.
//   radam: RAdam (Liu et al. 2020, algorithm 2), with adam's state, weight decay and place of ε, as
//   in optax. PyTorch adds ε to √v before the bias correction.
Result<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerConfig& config,
                                                 std::int64_t parameters);

}  // namespace troop
