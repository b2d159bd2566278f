#pragma once

#include "learners/training_config.h"

namespace troop {

// How the learners of a run exchange gradients; selects the Updater.
enum class Topology {
  kLocal,                      // one learner, which makes its updates by itself
  kHogwild,                    // one learner with several threads on shared weights
  kAllReduce,                  // several learners that average gradients; also tensor-parallel ones
  kParamServer,                // parameter shards apply the updates of any number of learners
  kTensorParallelParamServer,  // the same, with a tensor-parallel model as one worker
};

// The topology of a config with this number of learners and of tensor-parallel parts per model.
Topology TopologyOf(const TrainingConfig& config, int learners, int parts);

// True if no other learner changes the weights: kLocal, kHogwild.
bool IsAlone(Topology topology);
// True if parameter shards hold the weights: the two topologies with a parameter server.
bool UsesShards(Topology topology);

}  // namespace troop
