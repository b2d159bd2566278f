#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/tensor.h"
#include "nn/module.h"

namespace troop {

// Turns a gradient into a change of the value. Holds its own state [P] per slot and a step count.
// One owner thread. Same inputs, same bytes.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // value -= f(gradient * gradient_scale): the scale is the norm clip's factor. All [P].
  void Step(std::span<const float> gradient, float gradient_scale, float learning_rate,
            std::span<float> value);
  // The same with a learning rate for each group of neighbours. REQUIRES: the counts' sum is P.
  struct Group {
    std::int64_t count = 0;
    float learning_rate = 0;
    bool decays = true;  // false: without weight decay, as biases and norms are trained
  };
  void StepGroups(std::span<const float> gradient, float gradient_scale,
                  std::span<const Group> groups, std::span<float> value);
  // The same bytes, of a gradient in parts that follow each other. REQUIRES: [P] in all.
  void StepParts(std::span<const std::span<const float>> parts, float gradient_scale,
                 std::span<const Group> groups, std::span<float> value);
  struct Slot {
    std::string name;
    std::span<float> values;
  };                                      // "m", "v", …: [P] each
  virtual std::vector<Slot> slots() = 0;  // for checkpoints
  virtual std::int64_t steps() const = 0;
  virtual void set_steps(std::int64_t steps) = 0;

 private:
  virtual std::int64_t parameters() const = 0;
  // A group, or some of it, from element `first` on, within the step that set_steps counted.
  virtual void StepRange(std::int64_t first, std::span<const float> gradient, float gradient_scale,
                         const Group& group, float* value) = 0;
};

// The groups of a model's parameters at one learning rate: neighbours that decay
// (ParamSpec::decays) and those that don't, padding with what is before it.
std::vector<Optimizer::Group> DecayGroups(const Module& module, float learning_rate);

// config.optimizer.type: Adam / AdamW (Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019),
// RMSProp, centered or not (Graves 2013, eq. 38-42; ε inside the root as in DQN: sqrt(v - m² + ε)),
// SGD with or without momentum, or AdaGrad (Duchi et al. 2011); the last two as PyTorch has them.
Result<std::unique_ptr<Optimizer>> MakeOptimizer(const Config& config, std::int64_t parameters);

}  // namespace troop
