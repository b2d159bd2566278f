#pragma once

#include <memory>
#include <string>

#include "core/tensor/spec.h"
#include "learners/algorithm.h"
#include "learners/sync/tensor_parallel_worker.h"
#include "learners/training_config.h"
#include "nn/module.h"

namespace troop {

// The model of one learner: its part, the algorithm that trains it, and the parameter layouts.
struct LearnerModel {
  // index: of the learner. Errors: as MakeNetwork, MakeAlgorithm and MakeTextModel.
  static Result<LearnerModel> Make(const TrainingConfig& config, const EnvSpec& env, int index);

  TensorParallelRank place;       // the part of the model that this learner holds
  std::unique_ptr<Module> whole;  // the whole model
  std::string policy;             // EncodedPolicyOf the agent, for checkpoints; empty: a text model
  // Only for a tensor-parallel worker of parameter shards: the module of the part, and on rank 0
  // `algorithm` as the whole worker.
  std::unique_ptr<Module> part;
  TensorParallelReplica* replica = nullptr;
  std::unique_ptr<Algorithm> algorithm;
};

}  // namespace troop
