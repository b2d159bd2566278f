#pragma once

#include <memory>

#include "learners/algorithm.h"

namespace troop {

// learner.algorithm = "external": a program of the user computes the updates, such as
// troop.Learner of the Python package. The learner does everything else: it samples the replay,
// returns priorities, publishes weights and writes checkpoints.
//
// For each batch the learner writes these tensors to memory that it shares with the program, and
// waits for the answer: B = learner.batch_size items, S = actor.n_step.
//   observation, next_observation  [B, ...NetworkInput], in the environment's dtype
//   action                         [B, ...action]
//   reward, discount               [B, S] f32; past an item's length 0 and 1; rewards are clipped
//                                  to env.reward_clip
//   length                         [B] i32
//   weight                         [B] f32, importance weights
// The program writes there:
//   priority                       [B] f32, finite and at least 0: |TD error|
//   weights                        [P] f32, the network's parameters, if it has changed them
// and answers with the loss. Messages: python/troop/_learner.py. A checkpoint has the weights and
// the program's own state, as bytes. When a learner starts or is rolled back, the program must load
// both.
//
// ComputeGradient: kDataLoss: the loss, a priority or a weight is not finite, or the program
// answered without a result. kCancelled: it refused the batch. kUnavailable: the program has ended
// or does not answer; CheckFinite reports it too, so that the learner ends and its replacement
// connects again.
//
// env.observation: as the network's input. Connects at the first batch. Errors: kInvalidArgument: a
// setting that needs one of Troop's own algorithms.
Result<std::unique_ptr<Algorithm>> MakeExternalAlgorithm(const TrainingConfig& config,
                                                         const EnvSpec& env,
                                                         std::unique_ptr<Module> network);

}  // namespace troop
