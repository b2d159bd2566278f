#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/tensor/tensor.h"
#include "nn/module.h"

namespace troop {

// Applies gradients to a flat value. Owns its state, [P] per slot, and a step count. One owner
// thread. Deterministic.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update: value -= f(gradient * gradient_scale), where the scale is the factor of norm
  // clipping. All [P].
  void Step(std::span<const float> gradient, float gradient_scale, float learning_rate,
            std::span<float> value);
  // A range of consecutive parameters with its own learning rate. REQUIRES: the counts sum to P.
  struct Group {
    std::int64_t count = 0;
    float learning_rate = 0;
    bool decays = true;  // false: no weight decay, as for biases and norms
  };
  // Like Step, with one learning rate per group.
  void StepGroups(std::span<const float> gradient, float gradient_scale,
                  std::span<const Group> groups, std::span<float> value);
  // Like StepGroups, with a gradient in consecutive parts; gives the same bytes. REQUIRES: [P] in
  // total.
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
  // Updates a group, or a part of it, beginning at element `first`, within the step that set_steps
  // has counted.
  virtual void StepRange(std::int64_t first, std::span<const float> gradient, float gradient_scale,
                         const Group& group, float* value) = 0;
};

// Groups of a model's parameters at one learning rate: consecutive ones with weight decay
// (ParamSpec::decays) and without; padding belongs to the tensor before it.
std::vector<Optimizer::Group> DecayGroups(const Module& module, float learning_rate);

// Creates the optimizer of config.optimizer.type: Adam / AdamW (Kingma & Ba 2015, algorithm 1;
// Loshchilov & Hutter 2019), RMSProp, centered or not (Graves 2013, eq. 38-42; ε inside the root as
// in DQN: sqrt(v - m² + ε)), SGD with or without momentum, or AdaGrad (Duchi et al. 2011); the last
// two as in PyTorch.
Result<std::unique_ptr<Optimizer>> MakeOptimizer(const Config& config, std::int64_t parameters);

}  // namespace troop
