#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "learners/algorithm.h"
#include "learners/training_config.h"
#include "net/control/reward_statistics.h"
#include "nn/module.h"

namespace troop {

// The weights with which a new run starts if learner.init_from names another run or a checkpoint
// (a warm start). Tensors are matched by parameter name and shape; the others, such as the head of
// a run with another number of actions, keep their initial values. Statistics of observations are
// tensors like all others; those of rewards (env.normalize_rewards) are a part of the checkpoint.
// All functions block on the disk.

// The outcome of a warm start.
struct WarmStart {
  std::string checkpoint;                // path
  std::uint64_t updates = 0;             // of the checkpoint
  std::int64_t tensors = 0;              // that were copied
  std::vector<std::string> not_matched;  // names of the others, each with its reason
  RewardStatistics rewards;              // in the checkpoint; no values: it has none
  // One line for the log.
  std::string Describe() const;
};

// Overwrites the matched tensors in `value` [P], which has the initial values of `whole`. Every
// rank reads the same file, so all ranks start equal. Errors, with the key and the path: kNotFound:
// there is no run or checkpoint; kDataLoss: a damaged checkpoint, or a value that is not finite;
// kInvalidArgument: no tensor of two or more dimensions matches. `value` is unchanged then.
// REQUIRES: learner.init_from.
Result<WarmStart> LoadWarmStart(const TrainingConfig& config, const Module& whole,
                                std::span<float> value);

// Gives a new algorithm the weights of learner.init_from, if it is set, and logs which: value and
// target are equal, optimizer and counters stay those of a new run. place: the part of the model
// that the algorithm trains. Returns the reward statistics of the checkpoint, in whose scale the
// weights are; none without learner.init_from. Errors: those of LoadWarmStart. REQUIRES: no update
// was made.
Result<RewardStatistics> BeginWarm(const TrainingConfig& config, const EnvSpec& env,
                                   const TensorParallelRank& place, Algorithm* algorithm);

// Reports the same errors before a run starts. Ok without learner.init_from.
Status CheckWarmStart(const TrainingConfig& config, const EnvSpec& env);

}  // namespace troop
