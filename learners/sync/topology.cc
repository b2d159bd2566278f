// Implements the choice of the way in which learners exchange gradients.

#include "learners/sync/topology.h"

namespace troop {

// Parameter shards come first: even one learner uses them if the config says so.
Topology TopologyOf(const TrainingConfig& config, int learners, int parts) {
  if (config.learner.sync == LearnerSync::kParamServer) {
    return parts > 1 ? Topology::kTensorParallelParamServer : Topology::kParamServer;
  }
  if (learners > 1) return Topology::kAllReduce;
  return config.learner.hogwild_threads > 1 ? Topology::kHogwild : Topology::kLocal;
}

bool IsAlone(Topology topology) {
  return topology == Topology::kLocal || topology == Topology::kHogwild;
}

bool UsesShards(Topology topology) {
  return topology == Topology::kParamServer || topology == Topology::kTensorParallelParamServer;
}

}  // namespace troop
