#pragma once

#include <memory>

#include "learners/algorithm.h"
#include "nn/module.h"

namespace troop {

// Behavior cloning (Pomerleau 1991): supervised learning of the recorded actions. The network is
// that of DQN or DPG, so that the result acts, is evaluated and is exported like theirs.
//   discrete actions: the action values are logits; the loss is the mean over the batch of
//     -log softmax(q(s))[a]. LossReport::accuracy: share of rows whose largest logit is a's.
//   continuous actions: the mean over batch and action elements of (μ(s) - a)², in units of half
//     the action's range; the critic is not trained. Accuracy: share of rows in which each element
//     is within a tenth of its half range.
// Rows have equal weight, and there are no priorities (all 0). One update also clips the gradient's
// norm and makes the optimizer step, as in DQN. Deterministic.
//
// `network`: MakeNetwork of an agent. Errors: kInvalidArgument: another output shape.
Result<std::unique_ptr<Algorithm>> MakeBehaviorCloning(const TrainingConfig& config,
                                                       const EnvSpec& env,
                                                       std::unique_ptr<Module> network);

}  // namespace troop
